"""How Spark opens a table: one file for each format."""
