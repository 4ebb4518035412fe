"""SB952, SB953: edits of a model that break something, or that another release does otherwise."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.findings.case import Case, seen_with
from samebits.findings.rule import Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.edits.compare import call_of, differences
from samebits.questions.edits.records import EDITS, Edit, Part

_WORDS: dict[Part, str] = {
    "old rows of input embeddings": "old rows of the input embeddings have other bytes",
    "old rows of output embeddings": "old rows of the output embeddings have other bytes",
    "old rows of bias of the head": "old values of the head's bias are other ones",
    "other parameters": "other parameters have other bytes",
    "tensors": "tensors have other bytes",
    "names": "names are missing or unexpected",
    "tie": "input and output embeddings were one tensor or two, and are not so now",
    "sizes": "the sizes do not fit each other",
    "config": "the config has another number of tokens",
    "finite": "new values are not finite",
    "outputs": "the model computes other outputs from the same inputs",
    "saved tensors": "a copy that is saved and loaded again has other bytes",
    "saved outputs": "a copy that is saved and loaded again computes other outputs",
}

_COMPUTED: frozenset[Part] = frozenset({"outputs"})
_NEW_MODELS = ("load_state_dict() of a new model", "from_pretrained(")
_NOT_IN_FILES = frozenset({"SB301"})
"""A loaded model whose buffer is uninitialised memory is wrong itself, and another one that is made of its tensors is not."""


def _broken(case: Case) -> Iterator[Sighting]:
    """Find edits that change what they should leave, once for all ways of one that change the same."""
    if (signal := EDITS.in_cell(case.capture)) is None:
        return
    seen = set()
    for name, edit in signal.after.items():
        key = (call_of(name), frozenset(edit.broken))
        if edit.broken and key not in seen:
            seen.add(key)
            yield breaking(name, edit, *seen_with(signal.asked_of))


def breaking(name: str, edit: Edit, *more: str) -> Sighting:
    """Return what an edit breaks, a line for each part, and further lines."""
    lines = (f"{_WORDS[part]}: {text}" for part, text in edit.broken.items())
    is_made_anew = edit.broken.keys() <= _COMPUTED and name.startswith(_NEW_MODELS)
    return Sighting(name, (*lines, *more), follows=_NOT_IN_FILES if is_made_anew else frozenset())


def _otherwise(case: Case) -> Iterator[Sighting]:
    """Find edits that two releases do otherwise, and that break nothing."""
    pair = EDITS.on_both(case.reference, case.capture)
    if pair is None:
        return
    by_edit: dict[str, list[str]] = {}
    for each in differences(*pair):
        if each.what not in _WORDS:
            sides = (f"{each.what}: {side}" for side in (each.reference, each.candidate))
            by_edit.setdefault(each.edit, []).extend(side_lines(case, *sides))
    for edit, evidence in by_edit.items():
        yield Sighting(edit, (*evidence, *seen_with(pair[1].asked_of)))


RULES = (Rule("SB952", _broken), Rule("SB953", _otherwise))
