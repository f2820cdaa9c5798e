"""What a training does on a GPU that cannot hold its step: ``python -m sparkgpu.ops.doctor.out_of_memory``.

It trains twice, the second time with half of the memory that the first one took, and prints one JSON object:
the bytes of both peaks, both last losses on the validation rows, and the second one's notes.
"""

from __future__ import annotations

import json

import torch

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.neural.nets.network import InputShape, build_net
from sparkgpu.neural.rows.resident import ResidentRows, ResidentSource
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.training.checkpoint import TrainingState
from sparkgpu.neural.training.memory import release
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.optimizer import Recipe
from sparkgpu.neural.training.precision import Precision
from sparkgpu.neural.training.train import Training

_COLUMNS = 32


def train(device: torch.device, batch_rows: int = 2**15) -> TrainingState:
    """Four steps, each of `batch_rows` rows at once if they fit, of a network that learns a sum."""
    torch.manual_seed(0)
    config = NeuralParameters(
        architecture="mlp", hidden=(512, 512), dropout=0.0, epochs=2, batch_size=batch_rows, patience=0,
        micro_batch_size=batch_rows, learning_rate=1e-3, schedule="constant", weight_decay=0.0,
    )  # fmt: skip
    strategy = Strategy(RankPlace(device=device, precision=Precision(device_type=device.type, dtype=None)))
    strategy.spread(
        build_net(config, InputShape(num_numeric=_COLUMNS, num_levels=(), num_outputs=1)),
        Objective(task="regression"),
    )
    numeric_NG = torch.randn(2 * batch_rows, _COLUMNS)
    rows = ResidentRows(
        numeric_NG=numeric_NG, codes_NK=torch.empty((2 * batch_rows, 0), dtype=torch.int32),
        target_N=numeric_NG.sum(1), weight_N=None,
    ).to(device)  # fmt: skip
    return Training(
        strategy=strategy, source=ResidentSource(rows=rows), valid_rows=rows.part(slice(0, batch_rows // 8)),
        config=config, recipe=Recipe(), seed=0, report=lambda *_: None,
    ).run()  # fmt: skip


def main() -> None:
    device = torch.device("cuda")
    whole = train(device)
    peak = torch.cuda.max_memory_allocated(device)
    release(device)
    torch.cuda.reset_peak_memory_stats(device)
    torch.cuda.set_per_process_memory_fraction(peak / 2 / torch.cuda.mem_get_info(device)[1])
    less = train(device)
    found = {
        "peaks": [peak, torch.cuda.max_memory_allocated(device)],
        "losses": [state.curve[-1].valid for state in (whole, less)],
        "notes": less.notes,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
