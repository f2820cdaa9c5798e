"""How one network is spread over devices; each computes what one device would."""
