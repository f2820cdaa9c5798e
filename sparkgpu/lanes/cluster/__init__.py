"""The same run as one Spark application: its driver, its executors, and the supervisor that follows them."""
