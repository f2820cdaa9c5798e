"""This machine: devices, Java, processes, ports, folders, and how all of them are watched."""
