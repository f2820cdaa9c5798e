"""The pictures of the report, one module for each kind: each returns a `Picture`, or None without data."""
