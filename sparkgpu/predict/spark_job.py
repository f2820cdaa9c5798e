"""The job behind ``jobs/predict.py``: predicts a table by Spark's executors and writes a folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkgpu.core.errors import ConfigError, SparkgpuError
from sparkgpu.core.table.source import find_source
from sparkgpu.core.words import clean
from sparkgpu.predict.fitted import load
from sparkgpu.predict.members import BEST
from sparkgpu.predict.output import SET
from sparkgpu.prepare.spark_source import open_table
from sparkgpu.prepare.unreadable import refusing_unreadable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORMATS = ("parquet", "csv", "orc", "json")


def main(arguments: Sequence[str]) -> None:
    """Predict as the command line says; never returns. A refusal is one line, as in ``sparkgpu``."""
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(prog="predict.py", description=__doc__)
    parser.add_argument("run_dir", help="the folder of a finished run; all machines must see it")
    parser.add_argument("source", help="a file or folder that Spark can read, or table:NAME")
    parser.add_argument("--out", required=True, help="the folder to write; it must not exist")
    parser.add_argument("--model", default=BEST, help="best, trees, neural, blend, or the name of a trial")
    parser.add_argument("--format", default="parquet", choices=_FORMATS, help="of the files in --out")
    options = parser.parse_args(arguments)
    session = SparkSession.builder.appName("sparkgpu predict").getOrCreate()
    try:
        _predict_table(session, options)
    except SparkgpuError as error:
        print(f"sparkgpu: {clean(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    finally:
        session.stop()
    print(f"written {options.out}")
    sys.exit(0)


def _predict_table(session: SparkSession, options: argparse.Namespace) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql.functions import to_json

    find_source(options.source)  # before the seconds of loading
    model = load(options.run_dir, options.model)
    found = find_source(options.source, model.schema.dialect)
    table = open_table(session, found)
    notes = [*model.notes, *found.notes]
    if model.target in table.columns:
        notes.append("this job gives no metrics; `sparkgpu predict` does, of files")
    for note in notes:
        print(f"sparkgpu: note: {clean(note)}", file=sys.stderr)
    predicted = model.transform(table)
    if options.format == "csv" and SET in predicted.columns:  # CSV has no lists
        predicted = predicted.withColumn(SET, to_json(SET))
    try:
        with refusing_unreadable(found):
            # Only CSV knows a header.
            predicted.write.mode("error").option("header", "true").format(options.format).save(options.out)
    except AnalysisException as error:
        if "PATH_ALREADY_EXISTS" not in str(error):
            raise
        raise ConfigError(f"--out {options.out}: it exists. Give a new folder, or remove it.") from None
