"""Batch scripts for Slurm: writes them, checks them without a cluster, submits and follows them."""
