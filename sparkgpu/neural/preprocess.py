"""The numeric transforms of the networks, in torch: by a column's quantiles, or by its median and spread.

Training applies a transform once to the whole table; a model in use applies it to raw values. It is fitted
on training rows only.

N rows (B of a batch, S of a sample), F numeric columns, M columns with missing values in training,
G = F + M columns out, Q knots.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import torch
from torch import Tensor, nn

_MOST_KNOTS = 1000
_ROWS_PER_KNOT = 30  # with fewer rows per knot it would follow noise (the TabM project's rule)
_SAMPLE_ROWS = 100_000  # enough for 1000 knots
_CHUNK_ROWS = 8_192
_MOST = torch.finfo(torch.float32).max / 4  # replaces infinities, so that differences stay finite
_FAR = 1e18
_REACH = 5.199337582605575  # scikit-learn cuts the normal off here: its quantile at 1e-7


class NumericTransform(nn.Module):
    """Maps raw numbers (B, F), NaN for missing, to (B, G): F columns on a common scale and M indicators.

    `knots_FQ` are evenly spaced quantiles of the training rows' values. Nothing else is fitted.
    """

    knots_FQ: Tensor
    missing_M: Tensor

    def __init__(self, knots_FQ: Tensor, missing_M: Tensor) -> None:
        super().__init__()
        self.register_buffer("knots_FQ", knots_FQ)
        self.register_buffer("missing_M", missing_M)

    @classmethod
    def fit(cls, raw_NF: Tensor, *, generator: torch.Generator) -> Self:
        """Fit on training rows on their device; above 100,000 rows on a sample drawn by `generator` (CPU)."""
        return cls.fit_blocks(torch.split(raw_NF, _CHUNK_ROWS), len(raw_NF), generator=generator)

    @classmethod
    def fit_blocks(cls, blocks: Iterable[Tensor], rows: int, *, generator: torch.Generator) -> Self:
        """Fit on `rows` training rows that come in blocks (B, F); no block is kept."""
        chosen_S = torch.randperm(rows, generator=generator)[:_SAMPLE_ROWS].sort().values
        raw_SF: Tensor | None = None
        first = 0
        for raw_BF in blocks:
            if raw_SF is None:
                raw_SF = raw_BF.new_empty((len(chosen_S), raw_BF.shape[1]))
                low_F = raw_BF.new_full((raw_BF.shape[1],), torch.inf)
                high_F, missing_F = -low_F, torch.zeros_like(low_F, dtype=torch.bool)
            if len(raw_BF):
                low_F = torch.minimum(low_F, raw_BF.nan_to_num(nan=torch.inf, posinf=torch.inf).amin(0))
                high_F = torch.maximum(high_F, raw_BF.nan_to_num(nan=-torch.inf, neginf=-torch.inf).amax(0))
                missing_F |= raw_BF.isnan().any(0)
            begin, end = torch.searchsorted(chosen_S, torch.tensor([first, first + len(raw_BF)])).tolist()
            raw_SF[begin:end] = raw_BF.index_select(0, (chosen_S[begin:end] - first).to(raw_BF.device))
            first += len(raw_BF)
        assert raw_SF is not None and first == rows
        raw_SF.clamp_(-_MOST, _MOST)
        knots = max(min(rows // _ROWS_PER_KNOT, _MOST_KNOTS), 10)
        parts = [_knots(raw_SF[:, column], knots) for column in range(raw_SF.shape[1])]
        knots_FQ = torch.stack(parts) if parts else raw_SF.new_zeros((0, knots))
        # The sample may miss the extremes, or the only other value of a nearly constant column.
        is_empty_F = low_F > high_F
        knots_FQ[:, 0] = low_F.masked_fill(is_empty_F, 0.0).clamp(-_MOST, _MOST)
        knots_FQ[:, -1] = high_F.masked_fill(is_empty_F, 0.0).clamp(-_MOST, _MOST)
        return cls(knots_FQ, missing_F.nonzero().flatten())

    @property
    def num_outputs(self) -> int:
        return self.knots_FQ.shape[0] + self.missing_M.shape[0]

    def quantiles(self) -> Tensor:
        """Evenly spaced quantiles (Q, G) of the transformed training rows; 0 and 1 for indicators."""
        z_QG: Tensor = self(self.knots_FQ.t()).clone()
        columns = self.knots_FQ.shape[0]
        z_QG[1::2, columns:] = 1.0
        return z_QG

    def forward(self, raw_BF: Tensor) -> Tensor:
        """Missing values become 0, the middle of each column."""
        z_FB = self._scaled(raw_BF.t().contiguous()).masked_fill_(raw_BF.t().isnan(), 0.0)
        if self.missing_M.numel():
            z_FB = torch.cat([z_FB, raw_BF.t().index_select(0, self.missing_M).isnan().to(z_FB.dtype)])
        z_BG: Tensor = z_FB.t()
        return z_BG

    def _scaled(self, raw_FB: Tensor) -> Tensor:
        """In new memory; any value may replace NaN."""
        raise NotImplementedError

    def transform(self, raw_NF: Tensor) -> Tensor:
        """Transform the whole matrix, chunk by chunk, in its own memory if the result fits there."""
        fits = self.num_outputs == raw_NF.shape[1]
        out_NG = raw_NF if fits else raw_NF.new_empty((len(raw_NF), self.num_outputs))
        with torch.no_grad():
            for begin in range(0, len(raw_NF), _CHUNK_ROWS):
                end = begin + _CHUNK_ROWS
                out_NG[begin:end] = self(raw_NF[begin:end])
        return out_NG


class QuantileNormal(NumericTransform):
    """Normal scores: maps each column to a standard normal by its quantiles.

    The rank is interpolated between knots. Tied values get the middle rank of their tie, also at the ends, so
    that a rare 1 among zeros does not move the zeros to the far end. A value beyond the training range counts
    as the end of the range; a constant column becomes 0. Apart from ties at the ends this equals
    scikit-learn's ``QuantileTransformer(output_distribution="normal")``.
    """

    mid_FQ: Tensor

    def __init__(self, knots_FQ: Tensor, missing_M: Tensor) -> None:
        super().__init__(knots_FQ, missing_M)
        first_FQ = torch.searchsorted(knots_FQ, knots_FQ)
        last_FQ = torch.searchsorted(knots_FQ, knots_FQ, right=True) - 1
        mid_FQ = (first_FQ + last_FQ).to(torch.float32) / 2
        self.register_buffer("mid_FQ", mid_FQ, persistent=False)

    def _scaled(self, raw_FB: Tensor) -> Tensor:
        knots = self.knots_FQ.shape[1]
        x_FB = raw_FB.nan_to_num(nan=0.0).clamp(self.knots_FQ[:, :1], self.knots_FQ[:, -1:])
        # The last knot that is not above the value, and the next knot; equal knots leave the weight at 0.
        left_FB = torch.searchsorted(self.knots_FQ, x_FB, right=True).sub_(1)
        lower_FB = self.knots_FQ.gather(1, left_FB)
        upper_FB = self.knots_FQ.gather(1, (left_FB + 1).clamp_(max=knots - 1))
        between_FB = ((x_FB - lower_FB) / (upper_FB - lower_FB)).nan_to_num_(nan=0.0)
        rank_FB = torch.where(between_FB > 0, left_FB + between_FB, self.mid_FQ.gather(1, left_FB))
        z_FB: Tensor = torch.special.ndtri(rank_FB / (knots - 1)).clamp_(-_REACH, _REACH)
        return z_FB


class RobustClip(NumericTransform):
    """Distances from the median in interquartile ranges; large ones are bent towards 3 (RealMLP).

    A column with equal quartiles is scaled by its whole range instead; a constant column becomes 0.
    """

    def _scaled(self, raw_FB: Tensor) -> Tensor:
        return bend(raw_FB.clamp(-_MOST, _MOST), *middle_and_unit(self.knots_FQ))


def middle_and_unit(values_FQ: Tensor) -> tuple[Tensor, Tensor]:
    """The median and the interquartile range (F,) of each column's values, or half the range if that is 0."""
    places = torch.tensor([0.25, 0.5, 0.75], device=values_FQ.device)
    low_F, middle_F, high_F = torch.quantile(values_FQ, places, dim=1)
    spread_F = high_F - low_F
    half_range_F = (values_FQ.amax(dim=1) - values_FQ.amin(dim=1)) / 2
    return middle_F, torch.where(spread_F > 0, spread_F, half_range_F)


def bend(x_FB: Tensor, middle_F: Tensor, unit_F: Tensor) -> Tensor:
    """The distances from the middle in units, large ones bent towards 3; 0 where the unit is 0."""
    x_FB = x_FB - middle_F.unsqueeze(1)
    x_FB = torch.where(unit_F.unsqueeze(1) > 0, x_FB / unit_F.unsqueeze(1), 0.0)
    x_FB = x_FB.clamp(-_FAR, _FAR)  # beyond it the result is 3, and the square would overflow
    bent_FB: Tensor = x_FB / torch.sqrt(1.0 + torch.square(x_FB / 3))
    return bent_FB


def _knots(raw_S: Tensor, knots: int) -> Tensor:
    """Evenly spaced quantiles of one column, interpolated between neighbours; zeros if all is missing."""
    sorted_S = raw_S[~raw_S.isnan()].sort().values
    if len(sorted_S) == 0:
        return raw_S.new_zeros(knots)
    place_Q = torch.linspace(0, len(sorted_S) - 1, knots, dtype=torch.float64, device=raw_S.device)
    below_Q = sorted_S[place_Q.floor().long()].double()
    above_Q = sorted_S[place_Q.ceil().long()].double()
    quantile_Q = below_Q + (place_Q - place_Q.floor()) * (above_Q - below_Q)
    # Rounding must not move a knot before its neighbour.
    return quantile_Q.to(raw_S.dtype).cummax(0).values
