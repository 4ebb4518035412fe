"""JSON schemas of the files that people and other programs read and write.

These are matrix.yaml, report.json, expected.json of a capsule, compat.json, samebits.lock, watch.json, and what
samebits verify, bisect and golden print as JSON. All other files are between samebits and itself: their records define them. ``python -m samebits.schemas`` writes samebits/schemas/, for
editors and for readers in other languages; tests/test_schemas.py keeps the copies equal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

import samebits.questions  # noqa: F401  whose answers the report has
from samebits.base.field_texts import text_of
from samebits.bisect.records import Bisection
from samebits.golden.records import Golden
from samebits.matrix.spec import MatrixFile
from samebits.records.capsule import CapsuleFile
from samebits.records.compat import CompatFile
from samebits.records.lock import LockFile
from samebits.records.report import Report
from samebits.records.verification import VerificationFile
from samebits.watch.records import WatchFile

FOLDER = Path(__file__).parent / "schemas"

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SCHEMAS: dict[str, tuple[type[BaseModel], str]] = {
    "matrix.schema.json": (MatrixFile, "matrix.yaml"),
    "capsule.schema.json": (CapsuleFile, "expected.json of a reproducer"),
    "report.schema.json": (Report, "report.json"),
    "lock.schema.json": (LockFile, "samebits.lock"),
    "verification.schema.json": (VerificationFile, "samebits verify --format json"),
    "bisection.schema.json": (Bisection, "samebits bisect --format json"),
    "golden.schema.json": (Golden, "samebits golden --format json"),
    "compat.schema.json": (CompatFile, "compat.json"),
    "watch.schema.json": (WatchFile, "watch.json of samebits watch"),
}


def render() -> dict[str, str]:
    """Return every schema as text, by the name of its file."""
    return {name: _text(model, title) for name, (model, title) in _SCHEMAS.items()}


def write(folder: Path = FOLDER) -> None:
    """Write every schema into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


class _Generator(GenerateJsonSchema):
    """A schema generator that allows exactly what records write, with the texts of their fields."""

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        """Describe each property by the text below its field."""
        described = super().model_schema(schema)
        record = schema["cls"]
        for name, field in record.model_fields.items():
            part = described.get("properties", {}).get(field.alias or name)
            if part is not None and (text := text_of(record, name)):
                part.setdefault("description", text)
        return described

    def float_schema(self, schema: core_schema.FloatSchema) -> dict[str, Any]:
        """Allow NaN and infinities as the strings that records write, unless they are forbidden."""
        number = super().float_schema(schema)
        if schema.get("allow_inf_nan") is False:
            return number
        return {"anyOf": [number, {"enum": ["NaN", "Infinity", "-Infinity"]}]}


class _FileGenerator(_Generator):
    """A schema generator for a file that people write: a key is left out, and never null or empty."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        """Describe the value without null, which only stands for a key that is left out."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """Leave out empty defaults: an editor would write them."""
        described = super().default_schema(schema)
        if described.get("default") in ("", []):
            del described["default"]
        return described


def _text(model: type[BaseModel], title: str) -> str:
    generator = _FileGenerator if model is MatrixFile else _Generator
    schema = model.model_json_schema(schema_generator=generator)
    schema = {"$schema": _DIALECT, **_tidy(schema), "title": f"samebits: {title}"}
    return json.dumps(_ordered(schema), indent=2, ensure_ascii=False) + "\n"


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
