"""``sparkgpu doctor``: says what of this machine works for a run, and proves it by training."""
