"""JSON schemas of the files that samebits reads and writes.

The copies under samebits/schemas/ are for editors and for readers in other languages.
``python -m samebits.schemas`` writes them; tests/test_schemas.py checks that they are current.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from samebits.base import seal
from samebits.matrix.form import MatrixFile
from samebits.records.capsule import CapsuleFile
from samebits.records.capture import Capture
from samebits.records.crossing import CrossingsFile, SavedModel
from samebits.records.graft import DonorFile, GraftFile
from samebits.records.inputs import InputsFile
from samebits.records.ladder import LadderFile
from samebits.records.report import Report
from samebits.records.trace import Trace
from samebits.reports.json_refs import REFERENCE, WHERE
from samebits.storage.rows import KeptRow

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import core_schema

FOLDER = Path(__file__).parent / "schemas"

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SCHEMAS: dict[str, tuple[type[BaseModel], str]] = {
    "matrix.schema.json": (MatrixFile, "matrix.yaml"),
    "capture.schema.json": (Capture, "capture of one run of one cell"),
    "saved.schema.json": (SavedModel, "saved.json of a model that a stack saved"),
    "crossings.schema.json": (CrossingsFile, "what one stack makes of a model that others saved"),
    "inputs.schema.json": (InputsFile, "what the cells of a model are fed"),
    "ladder.schema.json": (LadderFile, "what one cell leaves on the precision ladder"),
    "capsule.schema.json": (CapsuleFile, "expected.json of a capsule"),
    "trace.schema.json": (Trace, "every operation of one prompt of one cell"),
    "donor.schema.json": (DonorFile, "what one cell leaves for another to be given"),
    "graft.schema.json": (GraftFile, "the sets of suspects that were put into one cell"),
    "report.schema.json": (Report, "report.json"),
    "row.schema.json": (KeptRow, "what a run keeps of a row that it compared"),
}


_WITHOUT_SEAL = {"matrix.schema.json", "capsule.schema.json", "report.schema.json"}
"""Schemas of files that a person writes or that are published; all other files have a seal."""

_SEAL = {
    "description": "SHA-256 of every byte of the file before this key, which is the last one.",
    "type": "string",
    "pattern": "^[0-9a-f]{64}$",
}


def render() -> dict[str, str]:
    """Return every schema as text, by file name."""
    return {
        name: _text(model, title, has_seal=name not in _WITHOUT_SEAL)
        for name, (model, title) in _SCHEMAS.items()
    }


def write(folder: Path = FOLDER) -> None:
    """Write every schema into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


class _Generator(GenerateJsonSchema):
    """A schema generator that allows exactly what records write."""

    def float_schema(self, schema: core_schema.FloatSchema) -> dict[str, Any]:
        """Allow NaN and infinities as the strings that records write, unless they are forbidden."""
        number = super().float_schema(schema)
        if schema.get("allow_inf_nan") is False:
            return number
        return {"anyOf": [number, {"enum": ["NaN", "Infinity", "-Infinity"]}]}


def _text(model: type[BaseModel], title: str, *, has_seal: bool) -> str:
    schema = model.model_json_schema(schema_generator=_Generator)
    if has_seal:
        schema["properties"] |= {seal.KEY: _SEAL}
        schema["required"] = [*schema.get("required", ()), seal.KEY]
    if model is Report:
        _allow_references(schema)
    schema = {"$schema": _DIALECT, **_tidy(schema), "title": f"samebits: {title}"}
    return json.dumps(_ordered(schema), indent=2, ensure_ascii=False) + "\n"


_SHARED = {
    "description": "A JSON Reference to a value in ``shared``.",
    "type": "object",
    "properties": {REFERENCE: {"type": "string", "pattern": f"^{WHERE}[0-9]+$"}},
    "required": [REFERENCE],
    "additionalProperties": False,
}


def _allow_references(schema: dict[str, Any]) -> None:
    """Allow a reference in place of any object, list or text, and add the list of shared values."""
    for definition in (schema, *schema["$defs"].values()):
        for part in (definition.get("properties", {}), definition):
            for key, inner in list(part.items()):
                if part is not definition or key in ("items", "additionalProperties"):
                    part[key] = _or_reference(inner)
    schema["$defs"]["Shared"] = _SHARED
    description = (
        "Values that occur in several places of the file; an entry may refer to entries before it."
    )
    schema["properties"]["shared"] = {"description": description, "type": "array", "default": []}


def _or_reference(part: Any) -> Any:  # noqa: ANN401  any JSON
    """Return a schema that also allows references, at every depth."""
    if not isinstance(part, dict):
        return part
    part = dict(part)
    for key in ("items", "additionalProperties"):
        if key in part:
            part[key] = _or_reference(part[key])
    for key in ("prefixItems", "anyOf"):
        if key in part:
            part[key] = [_or_reference(inner) for inner in part[key]]
    if part.get("type") not in ("object", "array", "string") and "$ref" not in part:
        return part
    annotations = {key: part.pop(key) for key in ("description", "default") if key in part}
    return annotations | {"anyOf": [part, {"$ref": "#/$defs/Shared"}]}


def _tidy(part: Any) -> Any:  # noqa: ANN401  # any JSON
    """Drop noise that an editor would show: titles made from field names, and null defaults."""
    if isinstance(part, list):
        return [_tidy(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {key: _tidy(value) for key, value in part.items() if not _is_noise(key, value)}


def _is_noise(key: str, value: object) -> bool:
    return (key == "title" and isinstance(value, str)) or (key == "default" and value is None)


_FIRST_KEYS = (
    "$schema",
    "$ref",
    "title",
    "description",
    "type",
    "const",
    "enum",
    "pattern",
    "anyOf",
)
_LAST_KEYS = ("properties", "required", "additionalProperties", "examples", "default", "$defs")


def _ordered(part: Any, *, is_schema: bool = True) -> Any:  # noqa: ANN401  # any JSON
    """Put the most important keys first; properties keep the order of the records."""
    if isinstance(part, list):
        return [_ordered(item) for item in part]
    if not isinstance(part, dict):
        return part
    keys = sorted(part, key=_rank) if is_schema else list(part)
    named = ("properties", "$defs", "default")
    return {key: _ordered(part[key], is_schema=key not in named) for key in keys}


def _rank(key: str) -> int:
    if key in _FIRST_KEYS:
        return _FIRST_KEYS.index(key)
    return len(_FIRST_KEYS) + (_LAST_KEYS.index(key) + 1 if key in _LAST_KEYS else 0)


if __name__ == "__main__":
    write()
