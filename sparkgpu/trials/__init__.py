"""The loop over a worker's trials: the time of each, searches of settings, and trees in two sizes."""
