"""One run from its configuration to its report: start, resume, stop cleanly, score."""
