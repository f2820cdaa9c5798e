"""Features of a column of texts: estimates for the target, and topics, both weighted sums of a text's words.

A text is its words in lower case, the 20,000 of most texts, each by its count times the logarithm of its
rareness (TF-IDF), scaled to length 1. Estimates are ridge regressions of the label (of each target's, if
there are several), or of each class, on these weights; topics are their first singular vectors (latent
semantic analysis). Both are fitted on up to 50,000 training rows and are one matrix, so Spark's own classes
give them, too (`sparkgpu.prepare.pipeline`).

No row sees its own label: a training row gets the estimates of a regression on the others' parts
(`SplitRule.parts`, modulo 5), all other rows those of the regression on all. Topics see no labels. What was
fitted lies beside the table. Imported for each prediction, so without pandas and scikit-learn.

N rows, V words, S estimates, F features (estimates, then topics), P parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.table.rows import as_numpy
from sparkgpu.core.table.schema import DroppedColumn, Feature
from sparkgpu.prepare.column_values import as_texts, text_array
from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.prepare.roles import ID_LIKE, ColumnRole
from sparkgpu.prepare.target import Target, weights_of

if TYPE_CHECKING:
    from scipy import sparse

    from sparkgpu.prepare.local_rows import LocalRows
    from sparkgpu.prepare.spark_rows import SparkRows
    from sparkgpu.prepare.split import SplitRule

FOLDER = "texts"
"""Its folder in ``table/``, with one file for each column."""
WORD = r"[\p{L}\p{M}\p{N}_]+"
"""A word, for Java and for RE2: letters, marks, digits and underscores."""
_NO_WORD = r"[^\p{L}\p{M}\p{N}_]+"
_MOST_WORDS, _MOST_TOPICS, _MOST_ESTIMATES = 20_000, 32, 20
_MOST_ROWS, _MOST_BYTES, _BATCH_ROWS = 50_000, 200_000_000, 4_096
_PARTS = 5
_RIDGE = 1.0
ESTIMATE = "estimate"
"""How the titles of estimates begin."""


def _lists_of_words(texts: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """The row (T,) and the text (T,) of each word; a text without a word has an empty one.

    Python's lower case is Java's, also of letters that become two; that of pyarrow is not.
    """
    lower = text_array([text.lower() for text in texts.fill_null("").to_pylist()])
    words = pc.split_pattern(pc.utf8_trim(pc.replace_substring_regex(lower, _NO_WORD, " "), " "), " ")
    return np.repeat(np.arange(len(texts)), as_numpy(pc.list_value_length(words))), words.flatten()


def _weights(row_T: NDArray[np.int64], code_T: NDArray[np.int64], rows: int, idf_V: Any) -> sparse.csr_matrix:
    """The weights (N, V) of words; code -1 is none of them. In the order of Spark's sums, so the same."""
    from scipy import sparse

    known_T = code_T >= 0
    place_T = row_T[known_T] * len(idf_V) + code_T[known_T]
    place_X, count_X = np.unique(place_T, return_counts=True)
    row_X, code_X = np.divmod(place_X, len(idf_V))
    value_X = count_X * idf_V[code_X]
    length_N = np.sqrt(np.bincount(row_X, value_X * value_X, minlength=rows))
    ends = np.searchsorted(row_X, np.arange(rows + 1))
    return sparse.csr_matrix((value_X / length_N[row_X], code_X, ends), shape=(rows, len(idf_V)))


def fit_texts(
    rows: LocalRows | SparkRows, roles: Sequence[ColumnRole], rule: SplitRule, weight: str | None
) -> tuple[list[ColumnRole], list[DroppedColumn], dict[str, pa.Table]]:
    """The roles, of texts with their parts; texts without words to learn from; what was fitted by column."""
    types = {role.column: rows.types[role.column] for role in roles if role.role == "text"}
    if not types:
        return list(roles), [], {}
    share = _MOST_ROWS / max(rule.target.rows, 1)
    sampled = partial(_sampled, rule=rule, types=types, weight=weight, share=share)
    found = rows.map(sampled, [*rule.columns, *types, *([weight] if weight else [])])
    sample = pa.concat_tables(found).sort_by("id")
    targets = rule.target.each
    fitted = {name: one for name in types if (one := _fitted(sample, name, targets)) is not None}
    kept = []
    for role in roles:
        if role.column in fitted:
            width = fitted[role.column].schema.field("numbers").type.list_size
            kept.append(replace(role, parts=_titles(width, targets)))
        elif role.role != "text":
            kept.append(role)
    reason = f"{ID_LIKE}: hardly a word is in two of its texts in the training rows"
    return kept, [DroppedColumn(column=name, reason=reason) for name in types if name not in fitted], fitted


def _titles(width: int, targets: Sequence[Target]) -> tuple[str, ...]:
    """The titles of the features of a matrix of this `width`."""
    estimates = [title for target in targets for title in _titles_of(target, alone=len(targets) == 1)]
    return (*estimates, *(f"topic {place + 1}" for place in range(width - (_PARTS + 1) * len(estimates))))


def _titles_of(target: Target, *, alone: bool) -> list[str]:
    """The titles of the estimates for one target."""
    classes, own = target.classes, "" if alone else f" ({target.column})"
    if len(classes) > _MOST_ESTIMATES:
        return []
    if len(classes) > 2:
        return [f"{ESTIMATE} of {name}{own}" for name in classes]
    return [ESTIMATE if alone else f"{ESTIMATE} of {target.column}"]


def _sampled(
    batches: Iterable[pa.RecordBatch],
    *,
    rule: SplitRule,
    types: Mapping[str, str],
    weight: str | None,
    share: float,
) -> pa.Table:
    """This share of the training rows: id, label, weight and part, and the texts by their column."""
    from sparkgpu.prepare.hashes import places_of  # loads pandas

    kept = []
    for batch in batches:
        place_N = places_of((rule.seed + 2) % 2**31, as_numpy(batch.column(ROW_ID)))  # not those of the split
        own = batch.filter(pa.array((rule.parts(batch) >= 0) & (place_N < share)))
        columns = {
            "id": own.column(ROW_ID),
            "weight": weights_of(own.column(weight)) if weight else np.ones(own.num_rows),
            "part": rule.parts(own) % _PARTS,
        }
        labels = {
            f"label {place}": target.values(target.labels(own))
            for place, target in enumerate(rule.target.each)
        }
        texts = {f"text {name}": as_texts(own.column(name), kind) for name, kind in types.items()}
        kept.append(pa.table(columns | labels | texts))
    return pa.concat_tables(kept)


def _fitted(sample: pa.Table, column: str, targets: Sequence[Target]) -> pa.Table | None:
    """The words, the logarithm of their rareness, and their numbers; None without words.

    The numbers are P times the estimates without the rows of a part, then those of new rows, and topics.
    """
    from sklearn.decomposition import TruncatedSVD

    sample = sample.take(np.arange(0, len(sample), -(-sample[f"text {column}"].nbytes // _MOST_BYTES) or 1))
    row_T, word_T = _lists_of_words(sample[f"text {column}"].combine_chunks())
    coded = word_T.dictionary_encode()
    word_D, code_T = np.array(coded.dictionary.to_pylist(), dtype=object), as_numpy(coded.indices)
    rows_D = np.bincount(np.unique(row_T * len(word_D) + code_T) % len(word_D), minlength=len(word_D))
    rows_D[word_D == ""] = 0
    order_V = np.lexsort([word_D, -rows_D])[:_MOST_WORDS]
    order_V = order_V[rows_D[order_V] > 1]
    if len(order_V) < 2:
        return None
    new_D = np.full(len(word_D), -1)
    new_D[order_V] = np.arange(len(order_V))
    idf_V = np.log((len(sample) + 1) / (rows_D[order_V] + 1)) + 1  # as in scikit-learn
    weight_NV = _weights(row_T, new_D[code_T], len(sample), idf_V)
    topics = TruncatedSVD(min(_MOST_TOPICS, len(order_V) - 1), random_state=0).fit(weight_NV).components_.T
    number_VX = np.hstack([*_regressions(weight_NV, sample, targets), topics])
    numbers = pa.FixedSizeListArray.from_arrays(number_VX.ravel(), number_VX.shape[1])
    return pa.table({"word": text_array(word_D[order_V].tolist()), "idf": idf_V, "numbers": numbers})


def _regressions(
    weight_NV: sparse.csr_matrix, sample: pa.Table, targets: Sequence[Target]
) -> Iterator[NDArray[Any]]:
    """The coefficients (V, S) of estimates: without the rows of each part, then of all rows."""
    from sklearn.linear_model import Ridge

    part_N, row_weight_N = (as_numpy(sample[name]) for name in ("part", "weight"))
    row_weight_N = row_weight_N / (row_weight_N.mean() or 1.0)
    values = []
    for place, target in enumerate(targets):
        label_N, classes = as_numpy(sample[f"label {place}"]), target.classes
        if len(classes) > _MOST_ESTIMATES:
            continue
        value_NS = label_N[:, None] == np.arange(len(classes)) if len(classes) > 2 else label_N[:, None]
        if not classes:
            value_NS = value_NS / (np.nanstd(value_NS) or 1.0)
        values.append((~np.isnan(label_N), value_NS))
    for part in range(_PARTS + 1):
        for has_label_N, value_NS in values:
            rows = np.flatnonzero((part_N != part) & (row_weight_N > 0) & has_label_N)
            model = Ridge(alpha=_RIDGE, solver="sparse_cg", tol=1e-4)
            model.fit(weight_NV[rows], value_NS[rows].astype(np.float64), row_weight_N[rows])
            yield model.coef_.reshape(value_NS.shape[1], -1).T


def write_texts(table: Path, features: Sequence[Feature], fitted: Mapping[str, pa.Table]) -> None:
    """Write what was fitted to the folder of a table."""
    for column, own in text_features(features).items():
        (table / FOLDER).mkdir(parents=True, exist_ok=True)
        pq.write_table(fitted[column], _file(table, own))


def _file(table: Path, own: Sequence[Feature]) -> Path:
    return table / FOLDER / f"{own[0].name}.parquet"


def text_features(features: Sequence[Feature]) -> dict[str, list[Feature]]:
    """The features of each column of texts, by that column."""
    found: dict[str, list[Feature]] = {}
    for feature in features:
        if feature.is_text:
            found.setdefault(feature.source, []).append(feature)
    return found


class TextFeatures:
    """What was fitted on a column of texts: `words`, their `idf_V`, and the matrix `all_VF` of new rows."""

    def __init__(self, file: Path, features: Sequence[Feature]) -> None:
        self.features = features
        self._estimates = sum(feature.reading == "estimate" for feature in features)
        try:
            found = pq.read_table(file).combine_chunks()
        except (OSError, pa.ArrowException):
            raise ConfigError(
                f"{file}: it is damaged or gone. Copy the whole folder of the run again."
            ) from None
        self.words = found["word"].chunk(0)
        self.idf_V = as_numpy(found["idf"])
        number_VX = as_numpy(found["numbers"].chunk(0).flatten()).reshape(len(self.words), -1)
        self._own_PVS = np.split(number_VX[:, : _PARTS * self._estimates], _PARTS, axis=1)
        self.all_VF = number_VX[:, _PARTS * self._estimates :]

    def columns(
        self, column_of: Mapping[str, pa.Array] | pa.RecordBatch, part_N: NDArray[np.int64]
    ) -> dict[str, NDArray[np.float32]]:
        """The features of rows with these columns; `part_N` is -1 for a row outside the training rows."""
        first = self.features[0]
        texts = as_texts(column_of[first.source], first.type or "string")
        value_NF = np.empty((len(texts), len(self.features)), dtype=np.float32)
        for begin in range(0, len(texts), _BATCH_ROWS):
            rows = slice(begin, begin + _BATCH_ROWS)
            row_T, word_T = _lists_of_words(texts[rows])
            code_T = as_numpy(pc.index_in(word_T, value_set=self.words).fill_null(-1))
            weight_NV = _weights(row_T, code_T, len(texts[rows]), self.idf_V)
            value_NF[rows] = weight_NV @ self.all_VF
            for part, own_VS in enumerate(self._own_PVS if (part_N[rows] >= 0).any() else ()):
                own = np.flatnonzero((part_N[rows] >= 0) & (part_N[rows] % _PARTS == part))
                value_NF[begin + own, : self._estimates] = weight_NV[own] @ own_VS
        return dict(zip([feature.name for feature in self.features], value_NF.T, strict=True))


def load_texts(table: Path, features: Sequence[Feature]) -> dict[str, TextFeatures]:
    """What was fitted on each column of texts, by the name of its first feature."""
    return {own[0].name: TextFeatures(_file(table, own), own) for own in text_features(features).values()}
