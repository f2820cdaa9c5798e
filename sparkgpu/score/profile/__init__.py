"""What is in the prepared table, and checks of it: gaps, drift, duplicates, leaks of the target.

It reads the table and the scorer's functions alone: no model, no engine, no Spark.
`write_profile` is the door.
"""

from sparkgpu.score.profile.write import write_profile

__all__ = ["write_profile"]
