"""The adapters of learners. An engine trains one trial and leaves its files; it scores nothing itself."""
