"""How one network is spread over devices; every strategy computes what one device would compute."""
