"""SB2xx: rules for config fields that a release does not have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from samebits.defaults.moved import is_same, turn
from samebits.defaults.table import table
from samebits.findings.rule import COMPUTED, RAISED, Rule, Sighting, of_exception
from samebits.lint.rules.configs import REMOVED
from samebits_wire.config_fields import WITHOUT_EFFECT

if TYPE_CHECKING:
    from samebits.findings.case import Case
    from samebits.records.capture import ConfigField

    _OfStack = tuple[str, ConfigField]

_BASE_ATTRIBUTES = "|".join(sorted(REMOVED | {"use_cache", "output_attentions"}))


def _moved_default(case: Case) -> Iterator[Sighting]:
    """Find fields with the default of each release: had config.json the field, both had its value."""
    reference = case.reference.signals.config if case.reference is not None else None
    candidate = case.capture.signals.config
    if reference is None or candidate is None:
        return
    for where, lines in _moved("", reference, candidate):
        yield Sighting(where, lines)


def _moved(
    path: str, reference: dict[str, Any], candidate: dict[str, Any]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    model_type = candidate.get("model_type")
    for field in sorted(reference.keys() & candidate.keys()):
        before, after = reference[field], candidate[field]
        if isinstance(before, dict) and isinstance(after, dict) and "model_type" in after:
            yield from _moved(f"{path}{field}.", before, after)
        elif isinstance(model_type, str) and not is_same(before, after):
            step = _turn(model_type, field, json.dumps(before), json.dumps(after))
            if step is not None:
                values = f"{path}{field}: {json.dumps(before)} → {json.dumps(after)}"
                yield (
                    f"{path}{field}",
                    (values, f"the default moved between {step[0]} and {step[1]}"),
                )


@cache
def _turn(model_type: str, field: str, before: str, after: str) -> tuple[str, str] | None:
    """Return the step of a default between two values, which are texts of JSON."""
    return turn(table(), model_type, field, json.loads(before), json.loads(after))


_WITHOUT_EFFECT = re.compile(
    rf"(.*\.)?({WITHOUT_EFFECT}|return_dict\w*|tokenizer_class|finetuning_task"
    r"|use_(timm|pretrained)_backbone)"
)
"""Settings that no forward reads. Of a backbone 5.3 makes a config of its own (backbone_utils.py)."""
_OF_ROPE_OR_TRAINING = re.compile(r"(.*\.)?\w*(rope|rotary|theta|initializer|coef)\w*")
"""Numbers that 5.x reads under other names, or that no forward reads."""
_OF_CONFIG_CLASS = re.compile(r"configuration_\w+\.py:")


def _replaced(case: Case) -> Iterator[Sighting]:
    """Find a value of config.json that the reference keeps and the candidate's config class overwrites."""
    for path, (old, before), (new, after) in _same_fields(case):
        is_kept = is_same(before.loaded, before.written)
        if is_kept and type(after.loaded) is type(after.written) and after.loaded != after.written:
            text = f"config.json has {path}: {json.dumps(before.written)}"
            yield Sighting(
                path, (f"{text}; {old} keeps it", f"{new} loads {json.dumps(after.loaded)}")
            )


def _default_copied(case: Case) -> Iterator[Sighting]:
    """Find a value of config.json that one side's config class replaces by its default, where it makes lists of it.

    ``Cohere2Config`` of 5.0 to 5.3 reads ``sliding_window_pattern`` before the base class has set it.
    """
    if not (case.has_diverged and _reaches_scores(case)):
        return
    used = case.capture.signals.config_use or {}
    for path, field in used.items():
        part, _, name = path.rpartition(".")
        for side, counterpart, of_reference in case.sides():
            wrong, right = (part_of(each.signals.config, part) for each in (side, counterpart))
            copies = [config.get(f"_{name}", field.written) for config in (wrong, right)]
            made = _lists(wrong, right)
            is_copied = is_same(copies[1], field.written) and not is_same(copies[0], copies[1])
            if made and is_copied:
                where = f"config.json has {path}: {json.dumps(field.written)}"
                lines = (
                    f"{where}; {counterpart.cell.stack} computes with it",
                    f"{side.cell.stack} computes with {json.dumps(copies[0])}",
                    f"the class makes {', '.join(made)} of it",
                )
                yield Sighting(path, lines, of_reference=of_reference)


def part_of(config: object, path: str) -> dict[str, Any]:
    """Return a config, or the one inside that a dotted path names; {} if there is none."""
    part = value_at(config, path) if path else config
    return part if isinstance(part, dict) else {}


def value_at(config: object, key: str) -> object:
    """Return the value of a dotted key in a loaded config; None if it has none."""
    for name in key.split("."):
        config = config.get(name) if isinstance(config, dict) else None
    return config


def _lists(wrong: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """Return the lists, such as a type per layer, in which two configs differ."""
    return [
        key
        for key in sorted(wrong.keys() & right.keys())
        if isinstance(wrong[key], list) and not is_same(wrong[key], right[key])
    ]


def _reaches_scores(case: Case) -> bool:
    return "differs" in {case.outcome(signal) for signal in ("logits", "decode")}


def _ignored(case: Case) -> Iterator[Sighting]:
    """Find a setting that a model reads on one side and nothing on the other: an older release may not know it."""
    if not (case.has_diverged and _reaches_scores(case)):
        return
    for path, before, after in _same_fields(case):
        for (reader, used), (lacking, left), of_reference in (
            (before, after, False),
            (after, before, True),
        ):
            is_moved = isinstance(used.written, float) and _OF_ROPE_OR_TRAINING.fullmatch(path)
            if not is_moved and not _WITHOUT_EFFECT.fullmatch(path) and _reads_alone(used, left):
                value = json.dumps(used.written)
                lines = (
                    f"config.json has {path}: {value}, which is not the default",
                    f"{reader} reads it in {used.read}",
                    f"{lacking} reads it nowhere",
                )
                yield Sighting(path, lines, of_reference=of_reference)


def _reads_alone(used: ConfigField, left: ConfigField) -> bool:
    """Return True if a model reads a setting that is not the default, and the other side leaves it where it is."""
    is_setting = isinstance(used.written, (bool, str, float)) and not used.is_default
    is_read = used.read and not _OF_CONFIG_CLASS.search(used.read) and not left.read
    is_left = left.loaded is None or is_same(left.loaded, left.written)
    return bool(is_setting and is_read and is_left)


def _same_fields(case: Case) -> Iterator[tuple[str, _OfStack, _OfStack]]:
    """Yield the path of each value of config.json, and what reference and candidate make of it."""
    if case.reference is None:
        return
    sides = case.reference, case.capture
    before, after = (side.signals.config_use or {} for side in sides)
    for path in sorted(before.keys() & after.keys()):
        if is_same(before[path].written, after[path].written):
            old, new = (side.cell.stack for side in sides)
            yield path, (old, before[path]), (new, after[path])


def _no_defaults(case: Case) -> Iterator[Sighting]:
    """Find a config class that raises where a release makes one without arguments, to show what is no default."""
    for frame, inner in pairwise(case.frames):
        if inner.own and inner.function == "__init__" and "self.__class__()" in frame.code:
            made = f"made without arguments by {frame.function}() of the base class"
            yield Sighting(case.place(inner), (*case.exception_lines(), made))


_INCONSISTENT = r"has a `config_class` attribute that is not consistent"
_WITHOUT_CLASS = r"'NoneType' object has no attribute '(__name__|from_pretrained)'"


def _unlike_class(case: Case) -> Iterator[Sighting]:
    """Find a model class that an Auto class refuses for its ``config_class``, or one that has none."""
    line = case.frames[-1].code if case.frames else ""
    has_none = "config_class" in line and case.raised("AttributeError", _WITHOUT_CLASS)
    if has_none or case.raised("ValueError", _INCONSISTENT):
        yield Sighting(case.raised_at(), case.exception_lines())


RULES = (
    of_exception(
        "SB201", "AttributeError", rf"'\w*Config' object has no attribute '({_BASE_ATTRIBUTES})'"
    ),
    of_exception(
        "SB202", "AttributeError", r"'\w*Config' object has no attribute 'rope_(theta|scaling)'"
    ),
    Rule("SB216", _unlike_class, explains=RAISED),
    of_exception(
        "SB205",
        "StrictDataclassFieldValidationError|StrictDataclassClassValidationError"
        "|StrictDataclassDefinitionError",
        # what a validator of a class raises otherwise is a defect of the validator
        r"\A(?!Class validation error for validator '\w+':\s+(Attribute|Index|Name|Type)Error)",
    ),
    of_exception(
        "SB213",
        "KeyError",
        r"Missing required keys in `rope_(parameters|scaling)` for 'rope_type'=",
    ),
    Rule("SB209", _moved_default),
    Rule("SB211", _replaced),
    Rule("SB212", _ignored, explains=COMPUTED | {"weights"}),
    Rule("SB214", _no_defaults, explains=RAISED),
    Rule("SB215", _default_copied, explains=COMPUTED),
)
