"""`sparkgpu run` under `spark-submit`: ``spark-submit jobs/train.py [SOURCE] --target NAME ...``.

With a local master the JVM of spark-submit stays idle: each lane starts its own JVM, with its own ports and
device.
"""

import sys

from sparkgpu.cli import main

main(["run", *sys.argv[1:]])
