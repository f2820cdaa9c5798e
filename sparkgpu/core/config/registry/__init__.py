"""What a configuration can name: engines, networks, strategies and formats, one entry each."""
