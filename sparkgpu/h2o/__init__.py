"""Spark with H2O in it: the JVM, the session, frames, training, saved models. Only this room starts a JVM."""
