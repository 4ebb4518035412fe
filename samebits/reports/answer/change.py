"""What differs in a cell beyond rounding, how much, and where it begins."""

from __future__ import annotations

import re
from typing import NamedTuple

from samebits.compare.describe import short, some
from samebits.compare.outcome import has_other_size
from samebits.compare.phases import STORED
from samebits.diagnose.everywhere import is_everywhere
from samebits.findings.rule import RAISED, STATE, UNSTABLE
from samebits.questions.registry import by_code, codes_explaining, is_about, rules
from samebits.records.capture import Failure
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import Report
from samebits.records.trace import Cause
from samebits.reports.answer.releases import release
from samebits.reports.cell.cause import kind_words, shown_cause
from samebits.reports.cell.graft import graft_in_short
from samebits.text.markdown import clip
from samebits.text.numbers import rounded_ulp

MAX_MESSAGE = 120
_SEEN = ("logits", "outputs", "decode")
"""Signals that a user gets, the first ones first."""
_MUCH_MORE = 10.0
"""How much larger another of them must be to be named in place of an earlier one."""
_OF_FORM = ("missing output", "shape")
"""Rules of the float64 check for outputs that cannot be compared number by number."""
_STEPS = {
    "load": "loading",
    "greedy": "generate()",
    "forward": "forward",
    "stack": "building the environment",
}
"""First word of a phase -> what a user calls it."""
_TOKENIZER = re.compile(r"(^|/)tokenization_\w+\.py$")
"""Files of tokenizers: what makes the inputs of a forward raises there."""
_ROW = re.compile(r"\[(\d+)\]$")
"""The row of a prompt."""
_DIFFER = {
    **dict.fromkeys(
        ("input", "weight", "buffer", "constant", "mask", "argument", "memory"), "differs"
    ),
    **dict.fromkeys(("padding", "keys", "positions"), "differ"),
}
"""Kind of a cause whose words name a thing -> its verb."""
_NAMES = {"sdpa": "SDPA", "eager": "eager"}


class Size(NamedTuple):
    """How far a signal is off, in the dtype of the cell and in float64."""

    signal: str
    own: float
    float64: float

    def __str__(self) -> str:
        """Return ``logits differ by 4, in float64 too``."""
        same = short(self.own) == short(self.float64)
        verb = "differs" if self.signal == "decode" else "differ"
        differ = f"{_subject(self.signal)} {verb} by"
        if self.own > _MUCH_MORE * self.float64:
            return f"{differ} {short(self.float64)} in float64, with rounding by {short(self.own)}"
        in_float64 = "in float64 too" if same else f"in float64 by {short(self.float64)}"
        return f"{differ} {short(self.own)}, {in_float64}"


def change(cell: CellResult) -> str:
    """Return what differs in a cell, in a phrase that no rounding enters."""
    if cell.failure is not None and (cell.judged is Verdict.FAILED or is_everywhere(cell)):
        rest = f"; and {_changed(cell)}" if cell.rest is Verdict.DIVERGED else ""
        return f"{_raised(cell.failure)}{rest}"
    match cell.judged:
        case Verdict.UNSTABLE:
            raised = [f"{_raised(failure)}{_named(failure, cell)}" for failure in cell.failures[:1]]
            return "; and ".join((_unstable(cell), *raised))
        case Verdict.DIVERGED:
            return _changed(cell)
        case Verdict.UNDECIDED:
            return f"{_figure(cell)}, and float64 does not tell whether it is rounding"
        case Verdict.ROUNDING:
            return f"rounding only ({cell.figure})" if cell.figure else "rounding only"
        case Verdict.IDENTICAL:
            return "same bits"
        case _:
            return " ".join(cell.headline.split())


def _changed(cell: CellResult) -> str:
    if not other_form(cell):
        return f"behaviour change ({_amount(cell)})"
    if (decisive := cell.decisive) is None:
        return f"outputs of another form ({_amount(cell)})"
    # the report names the place beside it, and it would leave no room for what changed
    what = decisive.what.removeprefix(f"{decisive.signal}: {decisive.item}: ")
    name = decisive.item.rpartition(" · ")[2]
    return f"outputs of another form ({name}: {clip(what, MAX_MESSAGE)})"


def other_form(cell: CellResult) -> tuple[str, ...]:
    """Return the outputs that have another form, or are gone, where no number differs but by rounding; else ()."""
    ladder = cell.ladder
    if ladder is None or cell.judged is not Verdict.DIVERGED or ladder.rule not in _OF_FORM:
        return ()
    items = (item for signal in cell.signals for item in signal.items)
    if any(step.kind == "diverged" for step in ladder.steps) or any(map(has_other_size, items)):
        return ()
    return tuple(dict.fromkeys(decider.subject.tensor for decider in ladder.rests_on))


def _raised(failure: Failure) -> str:
    word, _, _ = failure.phase.partition(" ")
    message = clip(" ".join(failure.in_short.split()), MAX_MESSAGE)
    kind = failure.type.rpartition(".")[2]
    step = _STEPS.get(word, failure.phase)
    if word == "forward" and any(_TOKENIZER.search(frame.file) for frame in failure.frames):
        step = "tokenizing a prompt"
    return f"{kind} in {step}: {message}".rstrip(": ")


def _named(failure: Failure, cell: CellResult) -> str:
    """Return the findings about an exception that stands beside the verdict, in brackets."""
    of_exceptions = codes_explaining(RAISED)
    codes = (f.code for f in cell.findings if f.code in of_exceptions and is_about(f, failure))
    listed = ", ".join(dict.fromkeys(codes))
    return f" ({listed})" if listed else ""


def only_draws(cell: CellResult) -> bool:
    """Return True if random draws of a forward are all that explains why a cell is unstable."""
    of_draws = {rule.code for rule in rules() if rule.explains == UNSTABLE}
    return of_draws.issuperset(explanation.code for explanation in cell.explained_by)


def _unstable(cell: CellResult) -> str:
    of_instability = codes_explaining(UNSTABLE | STATE)
    causes = [by_code()[e.code] for e in cell.explained_by if e.code in of_instability]
    if not causes:
        return "two runs of the same release give different numbers"
    if all(rule.explains == UNSTABLE for rule in causes):
        return "every forward gives different numbers"
    if all(rule.explains & STATE for rule in causes):
        return "one call changes the next, so the same input gives different numbers"
    if STORED.issuperset(cell.unstable_signals or ("logits",)):
        unseen = "" if cell.failures else ", which no output that was compared shows"
        return f"a load leaves numbers unwritten{unseen}"
    return "every load gives different numbers"


def _amount(cell: CellResult) -> str:
    """Return the size that is there in float64, too, else what decides without one."""
    sizes = sizes_beyond_rounding(cell)
    if sizes:
        return str(sizes[0])
    what = cell.decisive.what if cell.decisive is not None else cell.headline
    return clip(" ".join(rounded_ulp(what).split()), MAX_MESSAGE)


def sizes_beyond_rounding(cell: CellResult) -> list[Size]:
    """Return how far off what a user gets is, where it does not go away in float64; worst first."""
    steps = cell.ladder.steps if cell.ladder is not None else ()
    largest: dict[str, Size] = {}
    for step in steps:
        if step.kind != "diverged" or not step.own or not step.float64:
            continue
        best = largest.get(step.signal)
        if best is None or step.own > best.own:
            largest[step.signal] = Size(step.signal, step.own, step.float64)
    sizes = [largest[signal] for signal in _SEEN if signal in largest]
    most = max((size.own for size in sizes), default=0.0)
    return sorted(sizes, key=lambda size: size.own * _MUCH_MORE < most)


def _figure(cell: CellResult) -> str:
    """Return how far off a signal is whose difference is undecided."""
    name, _, amount = cell.figure.partition(" ")
    if not amount or " of " in amount or name == "tokens":
        return f"{_subject(name)} {amount}".strip() or "something differs"
    return f"{_subject(name)} {'differs' if name == 'decode' else 'differ'} by {amount}"


def _subject(signal: str) -> str:
    return "decoding" if signal == "decode" else signal.replace("_", " ")


def where(cell: CellResult, report: Report) -> str:
    """Return where a difference begins, or which line raises; '' if nothing shows it."""
    if cell.failure is not None and cell.judged is Verdict.FAILED:
        return _raised_at(cell.failure)
    cause = shown_cause(cell)
    if cause is not None and cause.decides:
        swapped = graft_in_short(cell, cause.candidate.tensor if _is_stored(cause) else "")
        return "; ".join(filter(None, (_cause(cell, cause, report), swapped)))
    if cell.judged is Verdict.UNSTABLE:
        return some(dict.fromkeys(explanation.where for explanation in cell.explained_by), 1)
    difference = cell.decisive
    if difference is None:
        return ""
    kernels = _kernels(cell, report) if difference.signal == "attention.kernel" else ""
    if kernels:
        return f"{difference.item.rpartition(' · ')[2]}: {kernels}"
    if difference.signal == "decode":
        prompt = _ROW.sub(r", row \1", difference.item)
        return f"decoding of prompt {prompt}"
    return f"{_subject(difference.signal)}: {difference.item}"


def _raised_at(failure: Failure) -> str:
    frame = failure.place
    return f"{frame.file}:{frame.line} in {frame.function}" if frame is not None else ""


def _cause(cell: CellResult, cause: Cause, report: Report) -> str:
    """Return module and kind of a cause, and the line on both sides."""
    side = cause.candidate
    names = (side.module, side.tensor, side.function)
    place = side.tensor if _is_stored(cause) else next(filter(None, names), "")
    lines = [
        f"{release(each.stack, report)}: {each.source.rpartition('/')[2]}"
        for each in (cause.reference, cause.candidate)
        if each is not None and each.source
    ]
    kernels = _kernels(cell, report) if _is_of_attention(cause) else ""
    what = kernels or " ".join(filter(None, (kind_words(cause), _DIFFER.get(cause.kind))))
    in_brackets = f" ({'; '.join(lines)})" if lines else ""
    return f"{place}: {what}{in_brackets}" if place else f"{what}{in_brackets}"


def _is_stored(cause: Cause) -> bool:
    return cause.kind in ("buffer", "weight") and bool(cause.candidate.tensor)


def _is_of_attention(cause: Cause) -> bool:
    """Return True for another kernel, or for another operation in a function of attention."""
    sides = filter(None, (cause.reference, cause.candidate))
    return cause.kind == "kernel" or (
        cause.kind == "operation" and any("attention" in s.function.casefold() for s in sides)
    )


def _kernels(cell: CellResult, report: Report) -> str:
    """Return the implementations of attention on both sides, if they are others."""
    for fact in cell.changes.get("attention.kernel", ()):
        if fact.module is None and fact.what == "resolved" and cell.reference is not None:
            sides = ((fact.reference, cell.reference.stack), (fact.candidate, cell.cell.stack))
            return ", ".join(
                f"{_NAMES.get(str(name), name)} in {release(stack, report)}"
                for name, stack in sides
            )
    return ""
