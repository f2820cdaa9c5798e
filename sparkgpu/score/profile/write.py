"""Makes ``profile.json`` from the prepared table of a run."""

from __future__ import annotations

import time

from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.profile import SplitProfile, TableProfile
from sparkgpu.core.table.schema import SplitName, read_schema
from sparkgpu.score.profile import (
    associations,
    columns,
    drift,
    duplicates,
    leaks,
    plain_checks,
    proxies,
    single_feature,
)
from sparkgpu.score.profile.sample import Sample, own_features, read_sample


def write_profile(paths: RunPaths) -> TableProfile:
    """Look at the table of a run, check it, and write ``profile.json``.

    If the run's metrics are there, the check for leaks compares with its best model. Raises `DataError` if
    the table has no training rows or cannot be read.
    """
    begin = time.monotonic()
    schema = own_features(read_schema(paths))
    names: tuple[SplitName, ...] = ("train", "valid", "test")
    samples: dict[SplitName, Sample] = {
        split: sample for split in names if (sample := read_sample(paths, schema, split)) is not None
    }
    if "train" not in samples:
        raise DataError(f"{paths.table}: the prepared table holds no rows of split train. Prepare it again.")
    train = samples["train"]
    found = list(columns.feature_columns(schema, samples))
    label = columns.target_column(schema, samples)
    target = single_feature.target_of(schema, samples)
    every = associations.row_step(train.size, len(found))
    of_target = associations.Ranked(label, every)
    with_target = [
        associations.association(associations.Ranked(column, every), of_target) for column in found
    ]
    alone = [single_feature.explained_alone(column, target) if target else None for column in found]
    profiles = tuple(
        columns.described(column, with_target=strength, alone=explained)
        for column, strength, explained in zip(found, with_target, alone, strict=True)
    )
    profile = TableProfile(
        splits={
            split: SplitProfile(rows=sample.total, looked_at=sample.size) for split, sample in samples.items()
        },
        target=columns.described(label),
        columns=profiles,
        associations=associations.associations(found, label, with_target, every),
        checks=(
            leaks.leakage(paths, schema, found, alone, target),
            duplicates.duplicates(samples),
            drift.drift([*found, label], samples),
            plain_checks.id_like(found, profiles, train),
            plain_checks.gaps(profiles),
            *([plain_checks.rare_classes(schema, train)] if schema.classes else []),
        ),
        withheld=proxies.withheld(paths, schema, samples),
        profile_s=time.monotonic() - begin,
    )
    write_json(paths.profile, profile)
    return profile
