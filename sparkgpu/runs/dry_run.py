"""What a dry run reads of the table: its columns, by which the names in the configuration are checked."""

from __future__ import annotations

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.rule_keys import DecisionConfig, RulesConfig
from sparkgpu.core.errors import ConfigError, DataError
from sparkgpu.core.host.reservations import scratch_folder
from sparkgpu.core.table.demo import DEMO_SOURCE
from sparkgpu.core.table.demo_table import resolve_demo
from sparkgpu.core.table.source import Source
from sparkgpu.present.terminal.display import Display


def check_columns(config: RunConfig, source: Source, display: Display) -> None:
    """Refuse a column that is named and not in the source's header. Raises `ConfigError`."""
    from sparkgpu.prepare.decisions import checked_targets
    from sparkgpu.prepare.held_out import check_held_out
    from sparkgpu.prepare.to_parquet import types_at_first_sight

    data = config.data
    for note in source.notes:
        display.warning(note)
    if config.decision != DecisionConfig():
        display.warning("[decision] is checked in the run, which reads the classes of the target")
    if (
        source == DEMO_SOURCE
        and not source.held_out
        and not (data.ignore or data.roles or data.weight or config.split.column or config.groups)
        and config.rules == RulesConfig()
    ):
        return  # only its target is named, and that is checked already
    with scratch_folder() as folder:
        here = resolve_demo(source, folder)
        if here.is_opened_by_spark:
            display.warning(f"{source.name}: Spark has to open it, so the names of columns were not checked")
            return
        types = types_at_first_sight(here)
        held_out = {table.name: types_at_first_sight(table) for table in here.held_out.values()}
    try:
        checked_targets(source.name, types, config)
        for name, found in held_out.items():
            check_held_out(name, found, types, data.ignore)
    except DataError as error:
        raise ConfigError(str(error)) from None
