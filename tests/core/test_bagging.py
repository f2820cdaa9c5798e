"""What the preset best adds within a time limit, and to which runs it adds nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from test_plan import plan_of

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.plan.bagging import bagged
from sparkgpu.core.plan.tree_defaults import TableSize

BEST = ("preset=best", "time_limit=10m")


def of(*assignments: str, rows: int = 1000) -> tuple[RunConfig, Mapping[str, str]]:
    config = config_io.load(assignments=assignments)
    return bagged(config, lambda most: rows if rows <= most else None)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkgpu.core.config.registry.engines.find_spec", lambda module: object())


@pytest.mark.usefixtures("installed")
def test_best_within_a_limit_trains_every_installed_kind_over_folds_and_says_so() -> None:
    config, reasons = of(*BEST)
    assert config.model_names == ("trees", "neural", "lightgbm", "catboost", "realmlp")
    assert config.split.folds == 8
    assert reasons["models"].startswith("with lightgbm, catboost, realmlp, all that are installed here")
    assert reasons["folds"].startswith("8, by the best preset within a time limit")
    written = config_io.check(_values(config), origin="run.toml")
    assert of(*BEST)[0] == bagged(written, lambda most: 1000)[0]  # nothing is left to choose


def _values(config: RunConfig) -> dict[str, object]:
    import tomllib

    return tomllib.loads(config_io.dump(config))


def test_what_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sparkgpu.core.config.registry.engines.find_spec",
        lambda module: module in ("lightgbm", "pysparkling") or None,
    )
    assert ENGINES.find("catboost").missing
    assert of(*BEST)[0].model_names == ("trees", "neural", "lightgbm", "realmlp")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("more", "rows", "models", "folds"),
    [
        (("preset=fast",), 1000, 2, None),
        (("search=20",), 1000, 2, None),
        (('models=["trees", "neural"]',), 1000, 2, 8),  # the user's own list
        (("split.folds=3",), 1000, 5, 3),
        (("split.valid=0.2",), 1000, 5, None),
        (("split.kind=time", "split.column=day"), 1000, 5, None),
        (("data.valid=valid.csv",), 1000, 5, None),
        ((), 100, 5, None),  # folds of a dozen rows tell nothing
        ((), 20_000, 5, None),
        ((), 100_000, 2, None),
    ],
)
def test_what_the_user_chose_stays_and_large_tables_get_less(
    more: tuple[str, ...], rows: int, models: int, folds: int | None
) -> None:
    config, reasons = of(*BEST, *more, rows=rows)
    assert (len(config.models), config.split.folds) == (models, folds)
    assert ("models" in reasons) == (models == 5)


@pytest.mark.usefixtures("installed")
def test_models_that_cannot_learn_as_the_trees_do_are_left_out() -> None:
    found = of(*BEST, "trees.distribution=poisson")[0].model_names
    assert found == ("trees", "neural", "lightgbm", "realmlp")
    assert of(*BEST, "trees.engine=lightgbm")[0].model_names[2:] == ("catboost", "realmlp")
    assert of(*BEST, "neural.architecture=realmlp")[0].model_names[2:] == ("lightgbm", "catboost")


def test_a_run_toml_of_the_two_models_alone_says_so(tmp_path: Path) -> None:
    config, _ = of(*BEST, 'models=["trees", "neural"]')
    file = tmp_path / "run.toml"
    file.write_text(config_io.dump(config))
    again = config_io.load(file=file)
    assert bagged(again, lambda most: 1000) == (again, {})
    plain = config_io.load()
    assert "models" not in config_io.dump(plain)


def test_folds_train_once_each_then_with_further_seeds() -> None:
    plan = plan_of(*BEST, "split.folds=8", "devices.cpu_lanes=1")
    trees = [trial.name for trial in plan.of(0, "trees")]
    assert trees[:9] == [*(f"trees-s7-f{fold}" for fold in range(8)), "trees-s8-f0"]
    assert plan.reasons["time limit"] == (
        "10:00 min: each model trains once on each fold, then with further seeds while they fit"
    )


def test_a_network_that_has_no_time_for_its_size_is_that_of_a_smaller_preset() -> None:
    size = TableSize(task="regression", train_rows=2500, num_features=70, num_classes=0)

    def hidden(*assignments: str) -> tuple[int, ...]:
        plan = plan_of(*assignments, "devices.cpu_lanes=1")
        return plan.resolved(config_io.load(assignments=assignments), size).neural.hidden

    assert hidden("preset=best") == hidden("preset=best", "time_limit=5h") == (512, 512)
    assert hidden("preset=best", "time_limit=5m") == (256, 256)
    assert hidden("preset=best", "time_limit=2m", "split.folds=8") == hidden("preset=fast") == (128, 128)
    assert hidden("preset=best", "time_limit=1m", "neural.hidden=[64]") == (64,)


def test_trees_are_planned_for_two_folds_and_networks_for_all_of_them() -> None:
    size = TableSize(task="binary", train_rows=2000, num_features=20, num_classes=2)

    def of_plan(*assignments: str) -> tuple[int, tuple[int, ...]]:
        plan = plan_of("preset=best", "time_limit=2m", *assignments)
        found = plan.resolved(config_io.load(assignments=assignments), size)
        return found.trees.ntrees, found.neural.hidden

    once, two, eight = of_plan(), of_plan("split.folds=2"), of_plan("split.folds=8")
    assert once[0] >= two[0] == eight[0]
    assert once[1] == (256, 256) and eight[1] == (128, 128)
