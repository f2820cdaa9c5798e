"""Reads a checkpoint of torch.distributed.checkpoint without running code that a pickle in it may name.

A run folder may come from somebody else. torch 2.13's `FileSystemReader` unpickles ``.metadata``, and its
`DefaultLoadPlanner` what is no tensor, such as a learning rate; tensors themselves it loads with
``weights_only``. Here both make nothing but torch's own records and plain values.
"""

from __future__ import annotations

import io
import pickle
from enum import Enum
from pathlib import PosixPath
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem

_RECORDS = (metadata.__name__, filesystem.__name__)
_OTHERS = {("torch", "Size"), ("torch.serialization", "_get_layout"), ("pathlib", "PosixPath")}


class ForeignCodeError(pickle.UnpicklingError):
    """A checkpoint names something that no checkpoint of ours holds."""


class PlainReader(FileSystemReader):
    """Reads the shards that `Checkpoints.save` wrote."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (PosixPath(self.path) / ".metadata").open("rb") as file:
            found: Metadata = _PlainUnpickler(file).load()
        if found.storage_meta is None:
            found.storage_meta = StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


class PlainPlanner(DefaultLoadPlanner):
    """Gives the values that are no tensors."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        plain = io.BytesIO()
        torch.save(torch.load(value, weights_only=True), plain)
        plain.seek(0)
        super().load_bytes(read_item, plain)


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):  # how Python before 3.11.4 writes a member of an enum
            return _member
        found = None if "." in name else super().find_class(module, name)
        is_record = module in _RECORDS and isinstance(found, type) and found.__module__ == module
        if is_record or (module, name) in _OTHERS or (module == "torch" and isinstance(found, torch.dtype)):
            return found
        raise ForeignCodeError(f"a checkpoint asks for {module}.{name}, which no training of ours writes")


def _member(kind: Any, name: str) -> Enum:
    if not (isinstance(kind, type) and issubclass(kind, Enum)):
        raise ForeignCodeError(f"a checkpoint asks for {name} of {kind!r}, which no training of ours writes")
    return kind[name]
