"""Spark and H2O in our own JVM. Only this room starts a JVM."""
