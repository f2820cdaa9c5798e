"""The pictures of reports: each function returns a `Picture`, or None without data."""
