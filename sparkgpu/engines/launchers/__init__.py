"""How the ranks of one network are started and looked after: on this machine, on several, on a cluster."""
