"""The prepared table: its schema, its rows, its predictions; and where a source lies before that."""
