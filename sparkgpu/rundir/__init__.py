"""The run directory: where its files lie, what they hold, how they are written."""
