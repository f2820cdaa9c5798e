"""XGBoost's old binary format, in which H2O keeps a booster: cuts one back, and rewrites one as UBJSON.

The format is that of XGBoost 1.x (there in ``src/learner.cc``, ``src/gbm/gbtree_model.h`` and
``include/xgboost/tree_model.h``): fixed little-endian records, and one block per tree. Only boosters of plain
trees can be read. XGBoost itself reads the format no more since 3.1; it reads UBJSON, which is JSON with
numbers as bytes (ubjson.org) and takes it a fifteenth of the time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

_LEARNER_BYTES = 136  # LearnerModelParamLegacy; starts with base score, number of features, of classes
_MODEL_BYTES = 160  # GBTreeModelParam; starts with the number of trees
_TREE_BYTES = 148  # TreeParam; the second number is that of the nodes
_NODE = np.dtype(
    [("parent", "<i4"), ("left", "<i4"), ("right", "<i4"), ("split", "<u4"), ("value", "<f4")]
)  # Node; a leaf has no left child, and its value is that of the leaf
_STATISTICS = np.dtype([("gain", "<f4"), ("hessian", "<f4"), ("weight", "<f4"), ("leaves", "<i4")])
_MARK = b"binf"  # before a booster that comes from memory, as H2O's do
_BOOSTER = b"gbtree"
_HIGHEST_BIT = 1 << 31  # in `split`: whether a missing value goes left
_NO_PARENT = 2**31 - 1
_VERSION = (1, 6, 1)
_OBJECTIVE_PARAMETERS = {
    "count:poisson": {"poisson_regression_param": {"max_delta_step": "0.7"}},
    "reg:tweedie": {"tweedie_regression_param": {"tweedie_variance_power": "1.5"}},
}
_TYPED = {"f4": b"[$d#L", "i4": b"[$l#L", "u1": b"[$U#L"}


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Where the parts of a booster begin; `tree_starts` has one more element than there are trees."""

    learner: int
    objective: str
    model: int
    tree_starts: tuple[int, ...]

    @property
    def num_trees(self) -> int:
        return len(self.tree_starts) - 1

    @property
    def groups(self) -> int:
        """The class of each tree."""
        return self.tree_starts[-1]


def cut_booster(booster: bytes, num_trees: int) -> bytes:
    """The same booster with only its first `num_trees` trees; all classes of all rounds count.

    Raises ValueError if this is not such a booster, or if it has fewer trees.
    """
    found = _layout(booster)
    if not 0 < num_trees <= found.num_trees:
        raise ValueError(f"{num_trees} trees were asked for, but the booster holds {found.num_trees}.")
    return b"".join(
        (
            booster[: found.model],
            struct.pack("<i", num_trees),
            booster[found.model + 4 : found.tree_starts[num_trees]],
            booster[found.groups : found.groups + 4 * num_trees],
            booster[found.groups + 4 * found.num_trees :],
        )
    )


def scaled_booster(booster: bytes, factor: float) -> bytes:
    """The same booster, whose predictions are exponentials, with all of them times `factor`."""
    place = _layout(booster).learner
    (base_score,) = struct.unpack_from("<f", booster, place)
    return booster[:place] + struct.pack("<f", base_score * factor) + booster[place + 4 :]


def booster_as_ubjson(booster: bytes) -> bytes:
    """The same booster as XGBoost's UBJSON. Raises ValueError if this is not such a booster."""
    found = _layout(booster)
    base_score, num_features, num_classes = struct.unpack_from("<fIi", booster, found.learner)
    objective: dict[str, Any] = {"name": found.objective}
    if num_classes:
        objective["softmax_multiclass_param"] = {"num_class": str(num_classes)}
    objective |= _OBJECTIVE_PARAMETERS.get(found.objective, {})
    model = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(found.num_trees)},
        "tree_info": struct.unpack_from(f"<{found.num_trees}i", booster, found.groups),
        "trees": [_tree(booster, found, tree, num_features) for tree in range(found.num_trees)],
    }
    parameters = {"base_score": base_score, "num_class": num_classes, "num_feature": num_features}
    learner = {
        "attributes": {},
        "gradient_booster": {"model": model, "name": _BOOSTER.decode()},
        "learner_model_param": {name: repr(value) for name, value in parameters.items()},
        "objective": objective,
    }
    return b"".join(_as_ubjson({"learner": learner, "version": _VERSION}))


def _as_ubjson(value: Any) -> Iterator[bytes]:
    """The parts of a value: an object, a list, a text, a whole number, or an array as a typed list."""
    if isinstance(value, np.ndarray):
        yield _TYPED[value.dtype.str[1:]] + struct.pack(">q", len(value))
        yield value.astype(value.dtype.newbyteorder(">")).tobytes()
    elif isinstance(value, dict):
        yield b"{"
        for key, found in value.items():
            yield _length(key) + key.encode("ascii")
            yield from _as_ubjson(found)
        yield b"}"
    elif isinstance(value, (list, tuple)):
        yield b"[#" + _length(value)
        for found in value:
            yield from _as_ubjson(found)
    elif isinstance(value, int):
        yield struct.pack(">cq", b"L", value)
    else:
        yield b"S" + _length(value) + value.encode("ascii")


def _length(value: Sized) -> bytes:
    return struct.pack(">cq", b"L", len(value))


def _tree(booster: bytes, found: _Layout, tree: int, num_features: int) -> dict[str, Any]:
    start = found.tree_starts[tree]
    (num_nodes,) = struct.unpack_from("<i", booster, start + 4)
    first = start + _TREE_BYTES
    nodes = np.frombuffer(booster, _NODE, num_nodes, first)
    statistics = np.frombuffer(booster, _STATISTICS, num_nodes, first + num_nodes * _NODE.itemsize)
    parent = np.where(nodes["parent"] == -1, _NO_PARENT, nodes["parent"] & (_HIGHEST_BIT - 1))
    return {
        "base_weights": statistics["weight"],
        "default_left": (nodes["split"] >= _HIGHEST_BIT).astype("u1"),
        "id": tree,
        "left_children": nodes["left"],
        "loss_changes": statistics["gain"],
        "parents": parent.astype("i4"),
        "right_children": nodes["right"],
        "split_conditions": nodes["value"],
        "split_indices": (nodes["split"] & (_HIGHEST_BIT - 1)).astype("i4"),
        "sum_hessian": statistics["hessian"],
        "tree_param": {
            "num_feature": str(num_features), "num_nodes": str(num_nodes), "size_leaf_vector": "1",
        },
    }  # fmt: skip


def _layout(booster: bytes) -> _Layout:
    learner = len(_MARK) if booster.startswith(_MARK) else 0
    try:
        objective, place = _text(booster, learner + _LEARNER_BYTES)
        kind, model = _text(booster, place)
        if kind != _BOOSTER:
            raise ValueError(f"a booster of kind {kind!r} cannot be read; only {_BOOSTER!r} can.")
        (held,) = struct.unpack_from("<i", booster, model)
        starts = [model + _MODEL_BYTES]
        for _ in range(held):
            _, num_nodes = struct.unpack_from("<ii", booster, starts[-1])
            starts.append(starts[-1] + _TREE_BYTES + num_nodes * (_NODE.itemsize + _STATISTICS.itemsize))
        struct.unpack_from(f"<{held}i", booster, starts[-1])  # the classes of the trees
    except struct.error:
        raise ValueError("the booster ends within its records.") from None
    return _Layout(
        learner=learner, objective=objective.decode("ascii"), model=model, tree_starts=tuple(starts)
    )


def _text(booster: bytes, place: int) -> tuple[bytes, int]:
    """The text at `place`, and the place after it."""
    (length,) = struct.unpack_from("<Q", booster, place)
    first = place + 8
    if first + length > len(booster):
        raise ValueError("this is not a booster in XGBoost's binary format.")
    return booster[first : first + length], first + length
