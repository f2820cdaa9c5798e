"""The adapters of learners. An engine trains one trial and writes its files; it scores nothing itself."""
