"""The records that a run writes as JSON beside ``metrics.json`` (docs/run-directory.md lists the files)."""

from __future__ import annotations

from pydantic import Field

from sparkgpu.core.rundir.files import Name, Part, Record


class SavedModelRecord(Record):
    """How far the saved model, loaded again, is from the trained one on `rows` test rows.

    `largest_difference` is relative to the largest prediction where that is above 1.
    """

    rows: int
    largest_difference: float


class MemoryRecord(Record):
    """What a network was to take on its GPU, in bytes.

    `budget_bytes` are for its tensors, `beside_bytes` for the trees on the same card. `lasting_bytes` are
    weights, moments and copies of them, `step_bytes` and `evaluation_bytes` what a step of `micro_rows` rows
    and the evaluation of `eval_rows` rows take besides.
    """

    budget_bytes: int
    beside_bytes: int
    table_bytes: int
    lasting_bytes: int
    step_bytes: int
    evaluation_bytes: int
    micro_rows: int
    eval_rows: int

    @property
    def peak_bytes(self) -> int:
        """The planned peak."""
        return self.table_bytes + self.lasting_bytes + max(self.step_bytes, self.evaluation_bytes)


class SearchRecord(Record):
    """What a search of settings tried, and the setting that it chose; scores are on the validation rows.

    A time limit may end it before it has tried as many as it was `asked`; `search_s` is its time.
    """

    asked: int
    tried: int
    pruned: int
    failed: int
    best: int
    setting: dict[str, object]
    metric: str
    default_score: float | None
    best_score: float | None
    search_s: float


class FitRecord(Record):
    """``fit.json``: an engine's record of one trial. The units are seconds, bytes and rows per second.

    `most_steps` is the number of trees or epochs after which training ends in any case, and `out_of_time`
    tells whether the run's time limit ended it before. If the run calibrates, the predictions are those at
    `temperature`, and the saved model's own are those at 1. `native_parameters` are the parameters that were
    handed to the native library, `device_proof` shows the device on which it ran, `on_gpu` says what that
    proves, `devices` names the devices, and `parameters` are the requested settings with the engine's names.
    The trial began and ended at `began_at` and `ended_at`, in seconds since the epoch.
    """

    trial: Name
    engine: str
    fit_s: float
    predict_s: float
    train_rows: int
    train_rows_per_s: float
    peak_host_bytes: int
    peak_device_bytes: int | None = None
    best_iteration: int
    most_steps: int | None = None
    out_of_time: bool = False
    temperature: float | None = None
    native_parameters: dict[str, str] = Field(default_factory=dict)
    device_proof: dict[str, object] = Field(default_factory=dict)
    on_gpu: bool = False
    devices: tuple[str, ...] = ()
    parameters: dict[str, object] = Field(default_factory=dict)
    saved_model: SavedModelRecord | None = None
    memory_plan: MemoryRecord | None = None
    search: SearchRecord | None = None
    began_at: float | None = None
    ended_at: float | None = None
    notes: tuple[str, ...] = ()


class StopRecord(Part):
    """``stopped.json``: what stopped a run before its end, and its exit code."""

    exit_code: int
    message: str


class HostRecord(Record):
    """A machine in the form of ``metrics.json``. `gpus` are names, `driver` is NVIDIA's version."""

    system: str
    processor: str
    cores: int
    available_memory_bytes: int
    gpus: tuple[str, ...]
    driver: str | None
