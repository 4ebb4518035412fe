"""Exceptions in checks beside the verdict: what answers in one release and raises in another differs.

A check is whatever a run tries besides its forwards: a phase that only explains, and each question
that a record of one has an exception for (``RAISED``). What processors and tokenizers raise is
compared with what they return, by their questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from samebits.compare.phases import decides, exception_key, is_shortage, word_and_prompt
from samebits.records.capture import Capture, Failure, Frame, Signals
from samebits.records.question import Answer, is_of_release, is_question
from samebits.records.record import marked

_EXCEPTION = re.compile(r"(?:^|: )([A-Z]\w*(?:Error|Exception)): (.*)", re.DOTALL)
"""Type and message, behind what was tried."""
_PLACE = re.compile(r" \(at ([^()]+\.py):(\d+) in ([\w<>]+)\)$")
"""The line that raised, of transformers or of the model."""


class Check(NamedTuple):
    """One check in which a side raised: the exceptions, '' for a side that answers."""

    name: str
    reference: str
    candidate: str

    @property
    def differs(self) -> bool:
        """True if only one side raises."""
        return bool(self.reference) != bool(self.candidate)

    @property
    def is_of_release(self) -> bool:
        """True if it is a use of any model, where the release matters and not the model."""
        word, rest = word_and_prompt(self.name)
        return is_of_release(word, word_and_prompt(rest)[0])

    @property
    def is_same(self) -> bool:
        """True if both sides raise the same, apart from places and releases."""
        sides = (_failure(self.name, text) for text in (self.reference, self.candidate))
        return len({exception_key(side) for side in sides}) == 1


def checks(reference: Capture, candidate: Capture) -> tuple[Check, ...]:
    """Return the checks that both sides made and in which a side raised.

    A shortage of memory and a process that died are faults of the machine, and left out.
    """
    before, after = _answers(reference), _answers(candidate)
    return tuple(
        Check(name, before.get(name, ""), after.get(name, ""))
        for name in {**before, **after}
        if (before.get(name) or after.get(name))
        and (name in before or _answered(reference, name))
        and (name in after or _answered(candidate, name))
        and not any(_is_machine(name, side.get(name, "")) for side in (before, after))
    )


def checks_of_jobs(
    answers: Mapping[str, Answer], reference: str, candidate: str
) -> tuple[Check, ...]:
    """Return what jobs of questions tried on both stacks, and in which a side raised; as :func:`checks`."""
    before, after = (
        _by_check(t for name, answer in answers.items() for t in answer.tried_on(stack, name))
        for stack in (reference, candidate)
    )
    return tuple(
        Check(name, before[name], after[name])
        for name in before
        if name in after
        and (before[name] or after[name])
        and not any(_is_machine(name, side[name]) for side in (before, after))
    )


def only_here(reference: Capture, candidate: Capture) -> Iterator[Failure]:
    """Yield the exceptions of checks that the reference answers, each with the line that its record names."""
    for check in checks(reference, candidate):
        match = _EXCEPTION.search(check.candidate) if check.differs else None
        if match is not None:
            place = _PLACE.search(match[2])
            yield Failure(
                phase=check.name,
                type=match[1],
                message=_PLACE.sub("", match[2]),
                traceback="",
                frames=() if place is None else (_frame(place),),
            )


def _frame(place: re.Match[str]) -> Frame:
    is_own = not place[1].startswith("transformers/")
    return Frame(file=place[1], line=int(place[2]), function=place[3], own=is_own)


def _answers(capture: Capture) -> dict[str, str]:
    """Return check -> its exception, or '' where a record says that it answered."""
    signals = capture.signals
    answers = _by_check(_tried(signals))
    answers |= {skip.what: skip.reason for skip in capture.skips if skip.raised}
    failures = (failure for failure in capture.failures if not decides(failure))
    return answers | {f.phase: f.in_words for f in failures}


def _by_check(tried: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return check -> its exception; '' only if no try of that name raised."""
    return dict(sorted(tried, key=lambda check: bool(check[1])))


def _tried(signals: Signals) -> Iterator[tuple[str, str]]:
    for name, record in (("integrity", signals.integrity), ("evidence", signals.evidence)):
        if record is not None:
            yield from marked(record, name)
    for name, answer in signals.answers.items():
        yield from answer.tried(name)


def _answered(run: Capture, name: str) -> bool:
    """Return True if a run came to its end, made a check, and says nothing of an exception."""
    word = word_and_prompt(name)[0]
    if run.status != "complete" or any(skip.what in (name, word) for skip in run.skips):
        return False
    is_signal = is_question(word) or word in type(run.signals).model_fields
    if is_signal and name != word:
        return False  # a question, which its record would list
    if is_question(word):
        return word in run.signals.answers
    return not is_signal or getattr(run.signals, word) is not None


def _failure(name: str, text: str) -> Failure:
    return Failure(phase=name, type=text.partition(":")[0], message=text, traceback="")


def _is_machine(name: str, text: str) -> bool:
    failure = _failure(name, text)
    return bool(text) and (is_shortage(failure) or failure.may_be_the_machine)
