"""Starts and watches the ranks of one network: on this machine, on several, on a Spark cluster."""
