"""From devices to lanes and trials, with the reason for each automatic choice: pure functions."""
