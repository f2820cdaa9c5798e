"""Reads a source in batches and in the order of its rows, by pyarrow: one file for each format."""
