"""Comparison of what probes of the user's returned: tensors by bytes, facts by type and text.

A file of probes is one signal. One that counts is compared like any other; one that only informs is
compared in the same way, and stays outside of what a verdict is made of.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from samebits.compare.outcome import differs, signal_comparison
from samebits.compare.pair import Pair, TensorSource, ended, union
from samebits.compare.phases import PROBE, is_shortage, same_exception, word_and_prompt
from samebits.compare.tensors import compare_tensors, unpaired
from samebits.compare.unit import SignalUnit
from samebits.records.capture import Capture, Failure, ProbeAnswer
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.ids import Signal
from samebits.records.subject import Reason, Subject

FIRST_ORDER = 1000
"""Place of the first file in the flow of data: behind every signal of samebits."""
LOST = "Lost"
"""Type of the failure of a probe whose process died or made no progress."""
_MAX_FACT = 60
"""Characters of a fact that a note shows."""


def probe_units(*captures: Capture) -> tuple[SignalUnit, ...]:
    """Return the units of the files of probes that count, of any of the captures."""
    names = _names(captures, verdict=True)
    return tuple(probe_unit(name, FIRST_ORDER + number) for number, name in enumerate(names))


def probe_unit(name: Signal, order: int) -> SignalUnit:
    """Return the unit of a file of probes.

    Its observations are none: a probe that does not repeat itself makes no cell unstable.
    """

    def compare(pair: Pair) -> SignalComparison:
        return compare_probes(pair, name)

    return SignalUnit(name, order, compare, lambda _: iter(()), frozenset({PROBE}))


def informing(
    reference: Capture, candidate: Capture, values: TensorSource
) -> tuple[SignalComparison, ...]:
    """Return the comparison of each file of probes that only informs."""
    pair = Pair(reference, candidate, values)
    names = _names((reference, candidate), verdict=False)
    return tuple(compare_probes(pair, name) for name in names)


def _names(captures: tuple[Capture, ...], *, verdict: bool) -> tuple[Signal, ...]:
    files = [(n, facts) for c in captures for n, facts in c.signals.probes.items()]
    return tuple(dict.fromkeys(name for name, facts in files if facts.verdict is verdict))


def compare_probes(pair: Pair, name: Signal) -> SignalComparison:
    """Compare what the probes of one file returned on both sides."""
    sides = [capture.signals.probes.get(name) for capture in (pair.reference, pair.candidate)]
    if sides[0] is None or sides[1] is None:
        note = "; ".join(_missing(pair, name))
        return SignalComparison(
            signal=name, outcome="not compared", n_items=0, n_differ=0, note=note
        )
    items = [
        item
        for function in union(sides[0].answers, sides[1].answers)
        for item in _items(pair, name, function)
    ]
    return signal_comparison(name, items)


def _missing(pair: Pair, name: Signal) -> Iterator[str]:
    """Yield why a side did not run the probes of a file."""
    for where, capture in (
        ("in the reference", pair.reference),
        ("in the candidate", pair.candidate),
    ):
        if name in capture.signals.probes:
            continue
        skips = (
            skip.reason
            for skip in capture.skips
            if skip.what == "probes" or word_and_prompt(skip.what) == (PROBE, name)
        )
        early = f"the run ended before: {ended(capture.unfinished)}"
        reason = next(skips, early if capture.status == "unfinished" else "no reason was recorded")
        yield f"not observed {where}: {reason}"


def _items(pair: Pair, name: Signal, function: str) -> Iterator[ItemComparison]:
    reference, candidate = (
        capture.signals.probes[name].answers.get(function, ProbeAnswer(left_out="it has none"))
        for capture in (pair.reference, pair.candidate)
    )
    blocked = _blocked(name, function, reference, candidate)
    if blocked is not None:
        yield blocked
        return
    for path in union(reference.tensors | reference.facts, candidate.tensors | candidate.facts):
        yield _item(Subject(tensor=path), reference, candidate, pair.values)


def _blocked(
    name: Signal, function: str, reference: ProbeAnswer, candidate: ProbeAnswer
) -> ItemComparison | None:
    """Return the item of a probe whose results cannot be compared, with the reason; else None.

    It is excused unless the cause may lie in the candidate alone. An exception of the candidate
    alone is excused here, too: it makes the cell fail by itself.
    """
    where = (("in the reference", reference), ("in the candidate", candidate))
    left_out = [f"not run {place}: {answer.left_out}" for place, answer in where if answer.left_out]
    raised = [
        f"raised {place}: {in_short(name, answer.failure)}"
        for place, answer in where
        if answer.failure is not None
    ]
    restless = [place for place, answer in where if answer.repeats is False]
    subject = Subject(tensor=function)
    item = ItemComparison(subject=subject, outcome="not compared", excused=True)
    if left_out:
        return item.model_copy(update={"note": "; ".join(dict.fromkeys(left_out))})
    if restless:
        note = f"not repeatable: two runs give different results, {' and '.join(restless)}"
        update = {
            "note": note,
            "reason": Reason.NOT_REPEATABLE,
            "excused": restless != ["in the candidate"],
        }
        return item.model_copy(update=update)
    if raised:
        failures = reference.failure, candidate.failure
        if failures[0] and failures[1] and same_exception(failures[0], failures[1]):
            raised = [f"raised the same on both sides: {in_short(name, failures[1])}"]
        is_certain = not any(f is not None and may_be_the_machine(f) for f in failures)
        update = {"note": "; ".join(raised), "reason": Reason.RAISED, "excused": is_certain}
        return item.model_copy(update=update)
    return None


def in_short(name: Signal, failure: Failure) -> str:
    """Return an exception with its place in the user's file: ``ValueError: … (my_probe.py:12)``."""
    lines = [frame.line for frame in failure.frames if frame.file == f"{name}.py"]
    place = f" ({name}.py:{lines[-1]})" if lines else ""
    return f"{failure.in_words}{place}"


def _item(
    subject: Subject, reference: ProbeAnswer, candidate: ProbeAnswer, values: TensorSource
) -> ItemComparison:
    path = subject.tensor
    tensors = reference.tensors.get(path), candidate.tensors.get(path)
    if tensors[0] is not None and tensors[1] is not None:
        return compare_tensors(subject, tensors[0], tensors[1], values)
    sides = [path in answer.tensors or path in answer.facts for answer in (reference, candidate)]
    if not all(sides):
        return unpaired(subject, *tensors, note=_fact_note(path, reference, candidate))
    if same_fact(reference, candidate, path):
        return ItemComparison(subject=subject, outcome="identical")
    note = _fact_note(path, reference, candidate)
    return ItemComparison(subject=subject, outcome="differs", note=note)


def same_fact(reference: ProbeAnswer, candidate: ProbeAnswer, path: str) -> bool:
    """Return True if a part is a fact on both sides, and the same: 1 and true are two facts."""
    if path not in reference.facts or path not in candidate.facts:
        return False
    return canonical(reference.facts[path]) == canonical(candidate.facts[path])


def canonical(fact: object) -> str:
    """Return a fact as canonical JSON."""
    return json.dumps(fact, sort_keys=True, separators=(",", ":"))


def _fact_note(path: str, reference: ProbeAnswer, candidate: ProbeAnswer) -> str:
    sides = [_shown(answer, path) for answer in (reference, candidate)]
    return f"{sides[0]} in the reference, {sides[1]} in the candidate"


def _shown(answer: ProbeAnswer, path: str) -> str:
    if path in answer.facts:
        text = canonical(answer.facts[path])
        return text if len(text) <= _MAX_FACT else f"{text[: _MAX_FACT - 1]}…"
    return "a tensor" if path in answer.tensors else "nothing"


# what both runs of a cell, or both cells of a pair, say of the probes


def with_repeats(capture: Capture, other_run: Capture) -> Capture:
    """Return a capture that says of each probe whether the other run of its cell gave the same."""
    if not capture.signals.probes:
        return capture
    probes = {
        name: facts.model_copy(
            update={
                "answers": {
                    function: answer.model_copy(
                        update={"repeats": _repeats(answer, other_run, name, function)}
                    )
                    for function, answer in facts.answers.items()
                }
            }
        )
        for name, facts in capture.signals.probes.items()
    }
    signals = capture.signals.model_copy(update={"probes": probes})
    return capture.model_copy(update={"signals": signals})


def _repeats(answer: ProbeAnswer, other_run: Capture, name: Signal, function: str) -> bool | None:
    facts = other_run.signals.probes.get(name)
    twin = facts.answers.get(function) if facts is not None else None
    if twin is None or answer.left_out or twin.left_out:
        return None
    failures = answer.failure, twin.failure
    if any(failure is not None and may_be_the_machine(failure) for failure in failures):
        return None
    if failures[0] is not None and failures[1] is not None:
        return same_exception(failures[0], failures[1])
    return failures == (None, None) and _content(answer) == _content(twin)


def _content(answer: ProbeAnswer) -> tuple[dict[str, str], str]:
    return {path: ref.hash for path, ref in answer.tensors.items()}, canonical(answer.facts)


def may_be_the_machine(failure: Failure) -> bool:
    """Return True if another run of a probe may end in another way."""
    return failure.type == LOST or is_shortage(failure)


def new_failures(reference: Capture, candidate: Capture) -> tuple[Failure, ...]:
    """Return the exceptions of probes that count, repeat themselves, and the reference has not.

    A probe that raises in the reference as well is none of the candidate's release.
    """
    return tuple(
        answer.failure
        for name, facts in candidate.signals.probes.items()
        for function, answer in facts.answers.items()
        if facts.verdict
        and answer.failure is not None
        and answer.repeats is not False
        and not may_be_the_machine(answer.failure)
        and _ran(reference, name, function)
    )


def _ran(capture: Capture, name: Signal, function: str) -> bool:
    """Return True if a probe returned something."""
    facts = capture.signals.probes.get(name)
    answer = facts.answers.get(function) if facts is not None else None
    return answer is not None and answer.failure is None and not answer.left_out


def differing(signals: tuple[SignalComparison, ...], *captures: Capture) -> tuple[Signal, ...]:
    """Return the files of probes among some signals that differ."""
    names = {name for capture in captures for name in capture.signals.probes}
    return tuple(s.signal for s in signals if s.signal in names and any(map(differs, s.items)))


def parts(capture: Capture, name: Signal) -> dict[str, Any]:
    """Return the parts of all results of a file: tensors as references, and facts."""
    facts = capture.signals.probes.get(name)
    answers = facts.answers.values() if facts is not None else ()
    return {
        path: value for answer in answers for path, value in (answer.tensors | answer.facts).items()
    }
