"""How one network is spread over devices: `base.Strategy` is one device, the others build on it."""
