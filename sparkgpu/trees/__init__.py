"""The tree engines. They never import torch."""
