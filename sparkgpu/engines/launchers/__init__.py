"""Starts and watches the ranks of one network: on this machine, on several machines, on a Spark cluster."""
