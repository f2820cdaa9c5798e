"""TabICLv2 (Qu et al., ICML 2026), by its authors' package ``tabicl``; read in version 2.2.

Their weights know 10 classes at once; the package tells more apart in steps. Their authors' figures are of
tables with 300 to 100,000 rows and up to 2,000 columns. The published weights are of the repository
``jingang/TabICL`` on Hugging Face (BSD-3-Clause), from which the package downloads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Here, since an engine whose package is missing must not be made.
from tabicl import TabICLClassifier, TabICLRegressor

from sparkgpu.core.errors import TrialError, described
from sparkgpu.neural.in_context.engine import Context, InContextEngine, Reader, Weights

_LICENCE = "BSD-3-Clause"
_OWN_LICENCE = "that of whoever made this file"


class TabICL(InContextEngine):
    """An engine (`sparkgpu.trials.engine.Engine`)."""

    def weights(self, context: Context, checkpoint: str | None) -> Weights:
        """Of a file with the package's ``config`` and ``state_dict``."""
        found = _fitted(context, checkpoint, "cpu")
        file = Path(found.model_path_)
        size, count = file.stat().st_size, sum(weight.numel() for weight in found.model_.parameters())
        licence = _LICENCE if checkpoint is None else _OWN_LICENCE
        return Weights(
            file=file,
            described=f"{file.name}, {size / 1e6:.1f} MB, {count:,} numbers; licence: {licence}",
        )

    @staticmethod
    def read(context: Context, weights: Path, device: str) -> Reader:
        """The package brings rows and columns into its own form."""
        found = _fitted(context, str(weights), device)
        if context.is_regression:
            return Reader(predict=lambda x_NX: np.asarray(found.predict(x_NX), dtype=np.float64))

        def probabilities(x_NX: NDArray[np.float32]) -> NDArray[np.float64]:
            values_NP = np.asarray(found.predict_proba(x_NX), dtype=np.float64)
            values_NP /= values_NP.sum(axis=1, keepdims=True)
            return values_NP

        most, num_classes = found.model_.max_classes, len(found.classes_)
        notes = (
            (f"its weights know {most} classes at once: {num_classes} are told apart in steps",)
            if num_classes > most
            else ()
        )
        return Reader(predict=probabilities, notes=notes)


def _fitted(context: Context, checkpoint: str | None, device: str) -> Any:
    """The package's estimator with its context. Without a checkpoint it finds or downloads the weights."""
    kind = TabICLRegressor if context.is_regression else TabICLClassifier
    estimator = kind(
        n_estimators=context.estimators,
        model_path=checkpoint,
        allow_auto_download=checkpoint is None,
        device=device,
        random_state=context.seed,
    )
    try:
        estimator.fit(context.x_NX, context.label_N)
    except Exception as error:  # of the file, of the hub, of the network
        reason = described(error)["message"].rstrip(".")
        if checkpoint is None:
            raise TrialError(
                f"the weights of TabICL cannot be downloaded ({reason}). Where there is a network, download "
                f"{estimator.checkpoint_version}, and name the file with tabicl.checkpoint."
            ) from error
        raise TrialError(
            f"{checkpoint}: no weights that TabICL can read ({reason}). Name a file of its authors, such as "
            f"{estimator.checkpoint_version}, with tabicl.checkpoint."
        ) from error
    if context.is_regression != (estimator.model_.max_classes == 0):
        ours, theirs = ("numbers", "classes") if context.is_regression else ("classes", "numbers")
        raise TrialError(
            f"{estimator.model_path_}: these weights predict {theirs}, and this table has {ours}. Name a "
            f"file such as {estimator.checkpoint_version} with tabicl.checkpoint."
        )
    return estimator
