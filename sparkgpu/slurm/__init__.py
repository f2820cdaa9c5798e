"""Batch scripts for Slurm: written, checked without a cluster, submitted, and followed."""
