"""Questions about a machine and a table: which strategy, how many devices, with what was measured here."""
