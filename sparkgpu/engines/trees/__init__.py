"""The tree engines. They never reach torch."""
