"""What another package may add to sparkgpu: an engine, a network, a format."""
