"""Predictions by Spark: ``spark-submit jobs/predict.py RUN_DIR SOURCE --out FOLDER [--model NAME]``.

For tables of the catalog, for files that only Spark reads, and for the executors of a cluster, which must see
the run directory under the same path.
"""

import sys

from sparkgpu.predict.spark_job import main

main(sys.argv[1:])
