"""What was trained, applied: loads the models of a run and predicts rows of frames, files and Spark tables.

Nothing here but `sparkgpu.predict.spark` reaches pyspark, and nothing reaches h2o.
"""
