"""The same run as one Spark application: its driver, its executors, and who follows them from outside."""
