"""What every room stands on: configuration, plan, run directory, table and this machine."""
