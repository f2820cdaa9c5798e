"""The torch engine. It reaches neither Spark nor H2O."""
