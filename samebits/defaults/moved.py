"""Which defaults moved between two releases, of those that a file leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import JsonValue

    from samebits.defaults.table import Default, Table

_SPELLINGS: Final = {
    "rope_parameters": ("rope_theta", "rope_scaling", "partial_rotary_factor"),
    "rope_scaling": ("rope_parameters",),
    "rope_theta": ("rope_parameters",),
    "dtype": ("torch_dtype",),
}
"""Field -> what a file may have in its place."""


@dataclass(frozen=True)
class Move:
    """A field that the file leaves out, and whose default differs between two releases."""

    of: str
    """The class that has it in the newer release."""
    field: str
    """With the config inside that has it: ``text_config.rms_norm_eps``."""
    before: JsonValue
    after: JsonValue
    since: str
    """The release from which on the newer default holds."""
    torch: str | None = None
    """The oldest torch with which it holds; None: with any."""


def class_names(table: Table, document: Mapping[str, Any], release: str) -> str | None:
    """Return the class that a release takes for a file; None if the table has none."""
    model_type = document.get("model_type")
    if isinstance(model_type, str):
        return table.class_of(model_type, release)
    for key in (
        "image_processor_type",
        "video_processor_type",
        "feature_extractor_type",
        "tokenizer_class",
    ):
        name = document.get(key)
        if isinstance(name, str):
            return spelling(table, name, release)
    return None


def spelling(table: Table, name: str, release: str) -> str | None:
    """Return the name that a class has in a release: old files say FeatureExtractor, and Fast went in 5.0."""
    slow = name.removesuffix("Fast")
    names = (name, slow, slow.replace("FeatureExtractor", "ImageProcessor"))
    return next((alternative for alternative in names if table.has(alternative, release)), None)


def moves(
    table: Table, document: Mapping[str, Any], first: str, last: str, names: tuple[str, str]
) -> list[Move]:
    """Return the moved defaults of a file and of the configs inside, by field.

    ``names`` are the classes of the file in both releases.
    """
    moved = [*_own(table, document, first, last, names)]
    parts = [table.parts(name, release) for name, release in zip(names, (first, last), strict=True)]
    for part in sorted(parts[0].keys() & parts[1].keys()):
        inside = document.get(part)
        inside = inside if isinstance(inside, dict) else {}
        pair = tuple(
            class_names(table, inside, release) or of[part]
            for of, release in zip(parts, (first, last), strict=True)
        )
        if all(map(table.has, pair, (first, last))):
            moved += (
                replace(m, field=f"{part}.{m.field}")
                for m in moves(table, inside, first, last, (pair[0], pair[1]))
            )
    return moved


def _own(
    table: Table, document: Mapping[str, Any], first: str, last: str, names: tuple[str, str]
) -> Iterator[Move]:
    before, after = table.of(names[0], first), table.of(names[1], last)
    written = _given(document, table.aliases(names[1], last))
    takes = table.takes(names[1], last)
    shared = before.keys() & after.keys() - written
    # None in place of False is the same to most code: last
    for field in sorted(shared, key=lambda f: (not before[f].value and not after[f].value, f)):
        old, new = before[field], after[field]
        if written & {*old.needs, *new.needs} or not _differ(old, new):
            continue
        if any(is_same(old.value, value) for value in takes.get(field, ())):
            continue  # the newer code takes the older value as its default
        since = _since(table, names, field, first, last)
        yield Move(names[1], field, old.value, new.value, since, new.torch or old.torch)


def _given(document: Mapping[str, Any], aliases: Mapping[str, str]) -> set[str]:
    """Return the fields that a file has, by any of their names."""
    inside = {
        f"{part}.{name}"
        for part, held in document.items()
        if isinstance(held, dict)
        for name in held
    }
    named = {*document, *inside, *(aliases[name] for name in document if name in aliases)}
    return named | {
        field
        for field, others in _SPELLINGS.items()
        if any(alternative in named for alternative in others)
    }


def _differ(old: Default, new: Default) -> bool:
    return old.is_stated and new.is_stated and not is_same(old.value, new.value)


def is_same(left: JsonValue, right: JsonValue) -> bool:
    """Tell whether two values are the same setting: 1 is 1.0, and True is not 1."""
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same(left[k], right[k]) for k in left)
    return left == right


def is_always(table: Table, model_type: str, field: str, value: JsonValue) -> bool:
    """Tell whether every release that has a field takes this value where a file leaves it out.

    A release that has the setting by another name has none of that value.
    """
    classes = ((table.class_of(model_type, release), release) for release in table.releases)
    defaults: list[Default] = []
    for name, release in classes:
        default = table.default(name, field, release) if name else None
        if default is not None:
            defaults.append(default)
        elif name and any(table.default(name, o, release) for o in _SPELLINGS.get(field, ())):
            return False
    return bool(defaults) and all(
        default.is_stated and not default.needs and is_same(default.value, value)
        for default in defaults
    )


def turn(
    table: Table, model_type: str, field: str, before: JsonValue, after: JsonValue
) -> tuple[str, str] | None:
    """Return the releases on both sides of the step at which a default went from one value to the other.

    The order of the values is free. None if no step of the table has both, or the source states one of them only
    for other fields at their defaults.
    """
    last: tuple[str, JsonValue] | None = None
    for release in table.releases:
        name = table.class_of(model_type, release)
        default = table.default(name, field, release) if name is not None else None
        if default is None or not default.is_stated or default.needs:
            last = None
            continue
        if last is not None and not is_same(last[1], default.value):
            pairs = ((before, after), (after, before))
            if any(is_same(last[1], a) and is_same(default.value, b) for a, b in pairs):
                return last[0], release
        last = release, default.value
    return None


def _since(table: Table, names: tuple[str, str], field: str, first: str, last: str) -> str:
    """Return the first of the releases that have the newer default without a break up to the last one."""
    wanted = table.default(names[1], field, last)
    assert wanted is not None
    since = last
    span = table.releases[table.releases.index(first) : table.releases.index(last)]
    for release in reversed(span):
        name = next((n for n in reversed(names) if table.has(n, release)), None)
        default = table.default(name, field, release) if name else None
        if default is None or not default.is_stated or not is_same(default.value, wanted.value):
            break
        since = release
    return since
