"""What may stand in the files that samebits reads and writes: their JSON schemas.

The copies under samebits/schemas/ are for editors and for readers in other languages.
``python -m samebits.schemas`` writes them again; tests/test_schemas.py keeps them equal.
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


_OWN = {"matrix.schema.json", "capsule.schema.json", "report.schema.json"}
"""Of files that a person writes, or that are published; the others bear a seal."""

_SEAL = {
    "description": "SHA-256 of every byte of the file before this key, which is the last one.",
    "type": "string",
    "pattern": "^[0-9a-f]{64}$",
}


def render() -> dict[str, str]:
    """Return every schema as text, by the name of its file."""
    return {
        name: _text(model, title, has_seal=name not in _OWN)
        for name, (model, title) in _SCHEMAS.items()
    }


def write(folder: Path = FOLDER) -> None:
    """Write every schema into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


class _Generator(GenerateJsonSchema):
    """Says what is true of our files and no more."""

    def float_schema(self, schema: core_schema.FloatSchema) -> dict[str, Any]:
        """Allow NaN and infinities as the strings that records write, unless they are refused."""
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
        _may_refer(schema)
    schema = {"$schema": _DIALECT, **_tidy(schema), "title": f"samebits: {title}"}
    return json.dumps(_ordered(schema), indent=2, ensure_ascii=False) + "\n"


_SHARED = {
    "description": "Stands for what lies there: a JSON Reference.",
    "type": "object",
    "properties": {REFERENCE: {"type": "string", "pattern": f"^{WHERE}[0-9]+$"}},
    "required": [REFERENCE],
    "additionalProperties": False,
}


def _may_refer(schema: dict[str, Any]) -> None:
    """Say that a reference may stand for any object, list or text inside, and where they lead."""
    for form in (schema, *schema["$defs"].values()):
        for part in (form.get("properties", {}), form):
            for key, inner in list(part.items()):
                if part is not form or key in ("items", "additionalProperties"):
                    part[key] = _or_shared(inner)
    schema["$defs"]["Shared"] = _SHARED
    said = "What stands in several places of the file; an entry may refer to those before it."
    schema["properties"]["shared"] = {"description": said, "type": "array", "default": []}


def _or_shared(part: Any) -> Any:  # noqa: ANN401  any JSON
    """Return a schema that a reference fits, too, and so at every depth of it."""
    if not isinstance(part, dict):
        return part
    part = dict(part)
    for key in ("items", "additionalProperties"):
        if key in part:
            part[key] = _or_shared(part[key])
    for key in ("prefixItems", "anyOf"):
        if key in part:
            part[key] = [_or_shared(inner) for inner in part[key]]
    if part.get("type") not in ("object", "array", "string") and "$ref" not in part:
        return part
    told = {key: part.pop(key) for key in ("description", "default") if key in part}
    return told | {"anyOf": [part, {"$ref": "#/$defs/Shared"}]}


def _tidy(part: Any) -> Any:  # noqa: ANN401  # any JSON
    """Drop what an editor would show and nobody needs: titles made of names, null defaults."""
    if isinstance(part, list):
        return [_tidy(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {key: _tidy(value) for key, value in part.items() if not _is_noise(key, value)}


def _is_noise(key: str, value: object) -> bool:
    return (key == "title" and isinstance(value, str)) or (key == "default" and value is None)


_ORDER = ("$schema", "$ref", "title", "description", "type", "const", "enum", "pattern", "anyOf")
_AT_THE_END = ("properties", "required", "additionalProperties", "examples", "default", "$defs")


def _ordered(part: Any, *, is_schema: bool = True) -> Any:  # noqa: ANN401  # any JSON
    """Put what a reader looks for first; properties stay in the order of the records."""
    if isinstance(part, list):
        return [_ordered(item) for item in part]
    if not isinstance(part, dict):
        return part
    keys = sorted(part, key=_rank) if is_schema else list(part)
    named = ("properties", "$defs", "default")
    return {key: _ordered(part[key], is_schema=key not in named) for key in keys}


def _rank(key: str) -> int:
    if key in _ORDER:
        return _ORDER.index(key)
    return len(_ORDER) + (_AT_THE_END.index(key) + 1 if key in _AT_THE_END else 0)


if __name__ == "__main__":
    write()
