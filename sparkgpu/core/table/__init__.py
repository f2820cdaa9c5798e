"""The prepared table: its schema, its rows and its predictions; and the source from which it is made."""
