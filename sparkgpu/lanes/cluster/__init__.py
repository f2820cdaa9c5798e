"""The same run as one Spark application: its driver, its executors, and the crew that follows them."""
