"""Makes ``table/`` and ``pipeline/`` from a source: columns and their roles, target, split, features."""
