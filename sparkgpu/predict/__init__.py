"""What was trained, applied: loads the models of a run and predicts rows of frames, files and Spark tables.

Nothing here but `sparkgpu.predict.spark_job` reaches pyspark, and nothing reaches h2o.
"""
