"""What is in the prepared table, and checks of it: gaps, drift, duplicates, leaks of the target.

It reads the table and the scorer's functions alone: no model, no engine, no Spark.
"""
