"""What commands show on a terminal, in a log and in the cell of a notebook."""
