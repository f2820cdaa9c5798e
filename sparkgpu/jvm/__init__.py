"""Spark and H2O in a JVM of ours: the only place that starts one."""
