"""Rules for what a release writes: names of tensors, keys of the checkpoint that it loses, and other values."""

from __future__ import annotations

import json
from collections.abc import Iterator

from samebits.defaults.moved import is_always
from samebits.defaults.table import table
from samebits.findings.case import Case
from samebits.findings.configs import part_of
from samebits.findings.rule import Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.writes.compare import saves
from samebits.questions.writes.values import in_words, is_cut, other_values
from samebits.records.capture import Capture
from samebits.text.numbers import first_of, plural

_MAX_NAMES = 6
_ABSENT = "absent"
_QUANTISED = "quantization_config"


def _other_names(case: Case) -> Iterator[Sighting]:
    """Find names of saved tensors that only one of two releases writes."""
    if case.reference is None:
        return
    sides = [saves(run).get("model") for run in (case.reference, case.capture)]
    names = [side.tensors for side in sides if side is not None and side.tensors is not None]
    if len(names) < 2 or names[0].keys() == names[1].keys():
        return
    only = (
        [name for name in own if name not in opposite] for own, opposite in (names, reversed(names))
    )
    lines = (
        f"only here: {plural(len(own), 'tensor')}, {', '.join(own[:_MAX_NAMES])}"
        if own
        else "no tensor of its own"
        for own in only
    )
    yield Sighting("save_pretrained", side_lines(case, *lines), saver=case.capture.cell.stack)


def _lost_keys(case: Case) -> Iterator[Sighting]:
    """Find keys that a file of the checkpoint states, and that its copy does not give back."""
    for save in saves(case.capture).values():
        for file, keys in save.lost.items():
            lines = [
                _lost_line(key, *in_words(stated, copied))
                for key, (stated, copied) in keys.items()
                if copied != _ABSENT or not _is_left_out(case.capture, key, stated)
            ]
            if not lines:
                continue
            evidence = first_of(lines, _MAX_NAMES, "key")
            yield Sighting(file, evidence, saver=case.capture.cell.stack)


def _lost_line(key: str, stated: str, copied: str) -> str:
    return f"{key}: the checkpoint states {stated}, its copy gives {copied}"


def _is_left_out(run: Capture, key: str, stated: str) -> bool:
    """Return True for a key that a right copy may leave out.

    A load that makes plain numbers of quantised weights takes it from the config, and their copy is not quantised.
    """
    if key.partition(".")[0] == _QUANTISED:
        return _QUANTISED not in (run.signals.config or {})
    return _is_default(run, key, stated)


def _is_default(run: Capture, key: str, stated: str) -> bool:
    """Return True for a field that any release reads as the checkpoint states it where a copy leaves it out."""
    part, _, name = key.rpartition(".")
    config = part_of(run.signals.config, part)
    model_type = config.get("model_type")
    if "auto_map" in (run.signals.config or {}) or not isinstance(model_type, str):
        return False
    return not is_cut(stated) and is_always(table(), model_type, name, json.loads(stated))


RULES = (
    Rule("SB208", _lost_keys),
    Rule("SB217", other_values),
    Rule("SB311", _other_names),
)
