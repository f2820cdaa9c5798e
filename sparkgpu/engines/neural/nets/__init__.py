"""The networks, one file each; `build.build_net` makes the one that a configuration names."""
