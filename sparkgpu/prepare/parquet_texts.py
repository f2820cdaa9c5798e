"""The figures of `sparkgpu.prepare.texts`, by pyarrow and batch by batch; and the extremes of any column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkgpu.prepare.roles import FLOAT32_MAX, Held
from sparkgpu.prepare.texts import (
    BLANKS,
    LEADING_ZERO,
    MEASURED,
    MISSING_MARKS,
    MOMENT,
    NUMBER,
    may_hold,
)

_SAMPLE = 100
_ZONE = r":[0-9]{2}([.][0-9]+)?(Z|[+-][0-9:]+)$"
_FINER = r"([.][0-9]{6})[0-9]+"
_LARGEST_LONG = 2.0**63


class Extremes(dict[str, Any]):
    """The least and the greatest value of each figure of a column, under the same names as Spark's."""

    def widen(self, name: str, found: pa.StructScalar) -> None:
        """Add the least and greatest value of another batch."""
        least, greatest = found["min"].as_py(), found["max"].as_py()
        if least is None:
            return
        least_name, greatest_name = f"least {name}".rstrip(), f"greatest {name}".rstrip()
        self[least_name] = min(self.get(least_name, least), least)
        self[greatest_name] = max(self.get(greatest_name, greatest), greatest)

    def widen_moments(self, moments: pa.Array) -> None:
        """Add moments in microseconds, in UTC without a zone."""
        self.widen("microsecond", pc.min_max(moments.view(pa.int64())))
        self.widen("hour", pc.min_max(pc.hour(moments)))
        self.widen("minute", pc.min_max(pc.minute(moments)))

    def moment_figures(self) -> dict[str, int]:
        """The figures for `sparkgpu.prepare.moments.varying_parts`; empty if there was no moment."""
        found = {}
        for end in ("least", "greatest"):
            if f"{end} microsecond" in self:
                found[f"{end} moment"] = self[f"{end} microsecond"] // 1_000_000
                found[f"{end} in day"] = self[f"{end} hour"] * 3600
                found[f"{end} in hour"] = self[f"{end} minute"] * 60
        return found


class TextFigures:
    """Whether the texts of a column are all numbers, or all moments, and their figures.

    The first texts show that most columns are plainly words, and these cost nothing more. Each distinct text
    of a batch is checked once.
    """

    def __init__(self) -> None:
        self._may_hold: frozenset[Held] | None = None
        self._counts = dict.fromkeys(("numbers", "measured", "leading zeros", "infinite", "too large"), 0)
        self._broken: int | None = None
        self._moments = 0
        self._numbers = Extremes()
        self._extremes = Extremes()

    def add(self, texts: pa.Array, *, is_target: bool) -> None:
        """Add another batch, which must hold no nulls."""
        if self._may_hold is None and len(texts):
            self._may_hold = may_hold(texts[:_SAMPLE].to_pylist())
        if not self._may_hold:
            return
        counted = pc.value_counts(texts)
        text_D, rows_D = counted.field("values"), counted.field("counts")
        is_text_D = pc.invert(
            pc.is_in(pc.utf8_trim(text_D, " "), value_set=pa.array(MISSING_MARKS, text_D.type))
        )
        text_D, rows_D = text_D.filter(is_text_D), rows_D.filter(is_text_D)
        if "numbers" in self._may_hold and not self._add_numbers(text_D, rows_D, is_target=is_target):
            self._may_hold -= {"numbers"}
        if "moments" in self._may_hold and not self._add_moments(text_D, rows_D):
            self._may_hold -= {"moments"}

    def _add_numbers(self, text_D: pa.Array, rows_D: pa.Array, *, is_target: bool) -> bool:
        """False if one of these texts is not a number."""
        text_D = pc.utf8_trim(text_D, BLANKS)
        if not _all(pc.match_substring_regex(text_D, f"^({NUMBER})$")):
            return False
        number_D = pc.utf8_ltrim(text_D, "+").cast(pa.float64())
        size_D = pc.abs(number_D)
        is_finite_D = pc.is_finite(number_D)
        fits_D = pc.less_equal(size_D, FLOAT32_MAX)
        for figure, which_D in (
            ("numbers", pc.is_valid(number_D)),
            ("measured", pc.match_substring_regex(text_D, MEASURED)),
            ("leading zeros", pc.match_substring_regex(text_D, LEADING_ZERO)),
            ("infinite", pc.is_inf(number_D)),
            ("too large", pc.and_(is_finite_D, pc.invert(fits_D))),
        ):
            self._counts[figure] += _sum(rows_D, which_D)
        if is_target:
            self._broken = (self._broken or 0) + _sum(rows_D, broken(number_D))
        self._numbers.widen("", pc.min_max(number_D.filter(fits_D)))
        return True

    def _add_moments(self, text_D: pa.Array, rows_D: pa.Array) -> bool:
        """False if one of these texts is not a moment."""
        text_D = pc.utf8_trim(text_D, " ")
        if not _all(pc.match_substring_regex(text_D, f"^({MOMENT})$")):
            return False
        text_D = pc.replace_substring_regex(text_D, _FINER, r"\1")
        is_zoned_D = pc.match_substring_regex(text_D, _ZONE)
        try:
            for which_D, zone in ((is_zoned_D, "UTC"), (pc.invert(is_zoned_D), None)):
                moment_D = text_D.filter(which_D).cast(pa.timestamp("us", zone))
                self._extremes.widen_moments(moment_D.view(pa.int64()).view(pa.timestamp("us")))
        except pa.ArrowInvalid:  # such as the 30th of February
            return False
        self._moments += pc.sum(rows_D).as_py() or 0
        return True

    def found(self) -> Mapping[str, Any]:
        """The figures, under Spark's names."""
        may_be = may_hold([]) if self._may_hold is None else self._may_hold  # of no texts, anything is true
        found: dict[str, Any] = {}
        if "numbers" in may_be:
            found = {"unparsable": 0, "broken": self._broken, **self._counts}
            found |= {end: self._numbers.get(end) for end in ("least", "greatest")}
        if "moments" in may_be:
            found |= {"no moments": 0, "moments": self._moments, **self._extremes.moment_figures()}
        return found


def broken(number_N: pa.Array) -> pa.Array:
    """The numbers that are not whole, within the range of Spark's whole numbers."""
    is_whole_N = pc.and_(pc.equal(number_N, pc.floor(number_N)), pc.less(pc.abs(number_N), _LARGEST_LONG))
    return pc.invert(is_whole_N)


def _all(which_N: pa.Array) -> bool:
    return pc.all(which_N).as_py() is not False


def _sum(rows_N: pa.Array, which_N: pa.Array) -> int:
    return pc.sum(rows_N.filter(which_N)).as_py() or 0
