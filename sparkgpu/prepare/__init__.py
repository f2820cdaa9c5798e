"""From a source to ``table/`` and ``pipeline/``: columns and their roles, target, split, features."""
