"""Cuts a booster in XGBoost's binary format, which H2O keeps, back to its first trees.

The format is that of XGBoost 1.x (there in ``src/learner.cc``, ``src/gbm/gbtree_model.h`` and
``include/xgboost/tree_model.h``): fixed little-endian records, and one block per tree. Only boosters of plain
trees can be cut.
"""

from __future__ import annotations

import struct

_LEARNER_BYTES = 136  # LearnerModelParamLegacy
_MODEL_BYTES = 160  # GBTreeModelParam; starts with the number of trees
_TREE_BYTES = 148  # TreeParam; the second number is that of the nodes
_NODE_BYTES = 20
_STATISTICS_BYTES = 16
_MARK = b"binf"  # before a booster that comes from memory, as H2O's do
_BOOSTER = b"gbtree"


def cut_booster(booster: bytes, num_trees: int) -> bytes:
    """The same booster with only its first `num_trees` trees; all classes of all rounds count.

    Raises ValueError if this is not such a booster, or if it has fewer trees.
    """
    start = len(_MARK) if booster.startswith(_MARK) else 0
    names = start + _LEARNER_BYTES
    _, place = _text(booster, names)
    kind, model = _text(booster, place)
    if kind != _BOOSTER:
        raise ValueError(f"a booster of kind {kind!r} cannot be cut; only {_BOOSTER!r} can.")
    first_tree = model + _MODEL_BYTES
    (held,) = struct.unpack_from("<i", booster, model)
    if not 0 < num_trees <= held:
        raise ValueError(f"{num_trees} trees were asked for, but the booster holds {held}.")
    end = first_tree
    kept_end = 0
    for tree in range(held):
        if tree == num_trees:
            kept_end = end
        _, num_nodes = struct.unpack_from("<ii", booster, end)
        end += _TREE_BYTES + num_nodes * (_NODE_BYTES + _STATISTICS_BYTES)
    kept_end = kept_end or end
    groups_end = end + 4 * held  # the class of each tree
    if groups_end > len(booster):
        raise ValueError("the booster ends within its trees.")
    return b"".join(
        (
            booster[:model],
            struct.pack("<i", num_trees),
            booster[model + 4 : kept_end],
            booster[end : end + 4 * num_trees],
            booster[groups_end:],
        )
    )


def _text(booster: bytes, place: int) -> tuple[bytes, int]:
    """The text at `place`, and the place after it."""
    (length,) = struct.unpack_from("<Q", booster, place)
    first = place + 8
    if first + length > len(booster):
        raise ValueError("this is not a booster in XGBoost's binary format.")
    return booster[first : first + length], first + length
