"""The networks: each has an input, blocks and an output."""
