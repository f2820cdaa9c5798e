"""A network that looks up training rows: which of them count for a row, and where they are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from planted import fit, parameters, plant
from torch import Tensor

from sparkgpu.core.table.rows import read_rows
from sparkgpu.neural.model import load_model
from sparkgpu.neural.nets import modernnca
from sparkgpu.neural.nets.dropout import Place, dropouts, set_place
from sparkgpu.neural.nets.modernnca import Neighbours
from sparkgpu.neural.nets.network import InputShape, TabularNet, build_net, find_network
from sparkgpu.neural.rows.resident import ResidentRows

ROWS = 200
SMALL = {"architecture": "modernnca", "hidden": (8,), "embedding_dim": 4}


def made_rows() -> ResidentRows:
    random = torch.Generator().manual_seed(0)
    return ResidentRows(
        numeric_NG=torch.randn((ROWS, 3), generator=random),
        codes_NK=torch.randint(-1, 4, (ROWS, 1), generator=random, dtype=torch.int32),
        target_N=torch.randn(ROWS, generator=random),
        weight_N=None,
        row_id_N=torch.arange(1000, 1000 + ROWS),
    )


def net_of(rows: ResidentRows) -> TabularNet:
    torch.manual_seed(0)
    config = parameters(**SMALL)
    net, start = (
        build_net(config, InputShape(num_numeric=3, num_levels=(4,), num_outputs=1)),
        find_network(config).start,
    )
    assert start is not None
    start(net, rows)
    return net


def outputs(net: TabularNet, rows: ResidentRows, *, step: int = 0) -> Tensor:
    set_place(dropouts(net), Place(seed=1, step=step, first_row=0, batch_rows=len(rows)))
    with torch.no_grad():
        found: Tensor = net(*rows.inputs)
    return found[:, 0, 0]


def test_a_training_row_never_sees_its_own_target() -> None:
    rows = made_rows()
    planted = replace(rows, target_N=rows.target_N.index_fill(0, torch.tensor([7]), 1e6))
    own = rows.part(slice(7, 8))
    for step in range(8):  # of which about four draw that row
        plain, changed = (outputs(net_of(one).train(), own, step=step) for one in (rows, planted))
        assert torch.equal(plain, changed)
    assert outputs(net_of(planted).eval(), replace(own, row_id_N=None)) > 100  # a new row like it does


def test_a_step_sees_half_of_the_candidates_and_each_step_others(monkeypatch: pytest.MonkeyPatch) -> None:
    net = net_of(made_rows()).train()
    assert isinstance(net.output, Neighbours)
    drawn = []
    for step in (0, 0, 1):
        set_place(dropouts(net), Place(seed=1, step=step, first_row=0, batch_rows=5))
        drawn.append(net.output.draw(net.output.row_id_N).tolist())
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == len(drawn[0]) == ROWS / 2
    monkeypatch.setattr(modernnca, "_MOST_DRAWN", 30)
    assert len(net.output.draw(net.output.row_id_N)) == 30


def test_a_candidate_counts_by_its_weight() -> None:
    rows, half = made_rows(), torch.arange(ROWS) % 2 == 0
    weighted = net_of(replace(rows, weight_N=half.float() * 2)).eval()
    few = net_of(rows.take(half.nonzero().flatten())).eval()
    new = replace(made_rows(), row_id_N=None).part(slice(20))
    torch.testing.assert_close(outputs(weighted, new), outputs(few, new))


def test_rows_are_predicted_alike_in_chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    net, new = net_of(made_rows()).eval(), replace(made_rows(), row_id_N=None)
    whole = outputs(net, new)
    monkeypatch.setattr(modernnca, "_MOST_PAIRS", 7 * ROWS)
    torch.testing.assert_close(outputs(net, new), whole, atol=1e-7, rtol=0)


@pytest.mark.parametrize("where", ["resident", "stream"])
def test_the_saved_network_holds_its_candidates_and_says_how_many_it_looks_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    paths, schema = plant(tmp_path, "regression")
    monkeypatch.setattr(modernnca, "NETWORK", replace(modernnca.NETWORK, start_rows=400))
    found = fit(paths, schema, **SMALL, epochs=2, data=where)
    assert "it looks up 400 of the 900 training rows" in found.record.notes
    model = load_model(found.folder)
    assert isinstance(model.net, TabularNet) and isinstance(model.net.output, Neighbours)
    ids = model.net.output.row_id_N.numpy()
    train = read_rows(paths, schema, "train", features=False)
    assert len(set(ids)) == 400 and set(ids) <= set(train.row_id_N)
    np.testing.assert_array_equal(model.predict(read_rows(paths, schema, "test")), found.test)


def test_counts_are_learned_on_the_scale_of_their_logarithm(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    label_N = random.poisson(3.0, 1500).astype(float)
    paths, schema = plant(tmp_path, "regression", label_N=label_N)
    found = fit(paths, schema, **SMALL, epochs=2, distribution="poisson")
    assert found.test.min() > 0 and found.test.mean() == pytest.approx(3.0, rel=0.1)
