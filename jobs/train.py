"""The `spark-submit` door: ``spark-submit jobs/train.py [SOURCE] --target NAME ...``, as ``sparkgpu run``.

On a local master the JVM that spark-submit has started stays idle: each lane starts its own, on ports and
a device of its own.
"""

import sys

from sparkgpu.cli import main

main(["run", *sys.argv[1:]])
