"""The JSON Schema of ``run.toml``, with which an editor completes keys and marks wrong values.

It is Draft 7, which TOML editors support. TOML has no null: an open key is simply left out.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sparkgpu.config.keys import RunConfig

_NAME = {"type": ["string", "integer"]}
_AS_WRITTEN: dict[tuple[str, str], dict[str, Any]] = {
    ("DevicesConfig", "gpus"): {"anyOf": [_NAME, {"type": "array", "items": _NAME}]},
    ("SlurmConfig", "time"): {"type": ["string", "integer"]},
    ("ClusterConfig", "spark"): {"type": "object"},
}
"""The values that a file may hold for keys with several spellings."""


class _OfToml(GenerateJsonSchema):
    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        return {key: value for key, value in found.items() if key != "default" or value is not None}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def run_schema() -> str:
    """The schema in the form of a file."""
    found = RunConfig.model_json_schema(schema_generator=_OfToml)
    for (section, key), written in _AS_WRITTEN.items():
        found["$defs"][section]["properties"][key] = written
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **found, "title": "run.toml of sparkgpu"}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
