"""The training loop of one rank: objective, optimizer, precision, memory, checkpoints."""
