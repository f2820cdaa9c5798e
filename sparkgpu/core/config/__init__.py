"""The keys of a run and their values, from files and the command line."""
