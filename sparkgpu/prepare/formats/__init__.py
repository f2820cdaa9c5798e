"""How a table is opened by Spark: one file for each way of storing it."""
