"""The torch engine. It imports neither Spark nor H2O."""
