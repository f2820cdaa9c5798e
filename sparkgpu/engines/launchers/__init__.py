"""How the ranks of one network are started and looked after: here, on several machines, on a Spark cluster."""
