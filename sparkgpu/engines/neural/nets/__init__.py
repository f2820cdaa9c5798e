"""The networks: an input, blocks and an output each."""
