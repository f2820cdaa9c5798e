"""The run directory: the paths of its files, their content, and how they are written."""
