"""Questions about this machine and this table: what works here, and how many devices are worth it."""
