"""Rules for what is lost where one release loads what another release saved."""

from __future__ import annotations

import re
from collections.abc import Iterator

from samebits.findings.case import Case
from samebits.findings.rule import Check, Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.crossings.parts import ALONE, GENERATION, OF_CHAT, OUTCOMES, TOKENIZER
from samebits.questions.crossings.records import CROSSINGS, Crossing, PartCrossing
from samebits.questions.texts.compare import position_in_words
from samebits.questions.texts.records import OperationComparison

_MAX_NAMES = 6
_MAX_OPERATIONS = 3
"""Operations that the evidence about a tokenizer or a processor shows."""
_MAX_WORDS = 40
"""Words of a message that are shown. torch names the mismatching tensor on its second line."""
_ROPE_FIELD = re.compile(
    r"(?:^|[_.])rope_(?:theta|scaling|parameters|local_base_freq)\b|(?:^|\.)(?:rotary_(?:pct|emb_base)|rope)\b"
)
"""A field in a config line of a crossing, or in a config inside. modernbert calls it ``global_rope_theta``."""
_CLAMP_ERROR = "clamp() received an invalid combination"


def _losses(crossing: Crossing) -> set[str]:
    """Return the losses of a crossing: ``rope``, ``tie``, ``infinity``, ``other``.

    ``other`` is added to a named loss if loading also missed keys, which that does not explain.
    """
    if crossing.failure is not None and _CLAMP_ERROR in crossing.failure.message:
        return {"infinity"}
    losses = set()
    if crossing.outcome != "load failed" and any(map(_ROPE_FIELD.search, crossing.config)):
        losses.add("rope")
    if any(field.startswith("tie_word_embeddings:") for field in crossing.config):
        losses.add("tie")
    return losses | {"other"} if crossing.keys or not losses else losses


def _is_lossy(crossing: Crossing) -> bool:
    """Return True if another stack saved the model and this stack did not load it unchanged.

    A save that failed is a finding of the saver (SB317). A process that died gives no cause.
    """
    if crossing.saver == crossing.loader or crossing.outcome == "save failed":
        return False
    died = crossing.failure is not None and crossing.failure.may_be_the_machine
    return crossing.is_loss and not died


def is_infinity_lost(case: Case) -> bool:
    """Return True if a release cannot read the infinity that this one saves, which SB204 names."""
    answer, saver = CROSSINGS.in_row(case.answers), case.capture.cell.stack
    crossings = answer.crossings if answer is not None else ()
    return any(
        crossing.saver == saver and _is_lossy(crossing) and "infinity" in _losses(crossing)
        for crossing in crossings
    )


def _loses(kind: str) -> Check:
    """Return a check for crossings between releases with this kind of loss."""

    def check(case: Case) -> Iterator[Sighting]:
        answer, loader = CROSSINGS.in_row(case.answers), case.capture.cell.stack
        for crossing in answer.into(loader) if answer is not None else ():
            if _is_lossy(crossing) and kind in _losses(crossing):
                where = f"saved by {crossing.saver}"
                yield Sighting(where, tuple(_evidence(crossing)), saver=crossing.saver)

    return check


def _evidence(crossing: Crossing) -> Iterator[str]:
    yield f"saved by {crossing.saver}, loaded by {crossing.loader}: {crossing.outcome}"
    if crossing.config:
        yield f"config: {'; '.join(crossing.config[:_MAX_NAMES])}"
    if crossing.keys:
        yield f"loading: {_first_names(crossing.keys)}"
    if crossing.tensors:
        yield f"different bytes than from the original: {_first_names(crossing.tensors)}"
    if crossing.logits == "same bits":
        yield "the logits have the same bits"
    elif crossing.logits_max_abs is not None:
        yield f"logits differ by up to {crossing.logits_max_abs:.2g}"
    if crossing.failure is not None:
        yield f"{crossing.failure.type}: {' '.join(crossing.failure.message.split()[:_MAX_WORDS])}"
    elif crossing.reason:
        yield crossing.reason


def _other_files(case: Case) -> Iterator[Sighting]:
    """Find files that only one of two releases writes beside the weights."""
    answer = CROSSINGS.in_row(case.answers)
    if answer is None or case.reference is None:
        return
    sides = [answer.files.get(run.cell.stack) for run in (case.reference, case.capture)]
    before, after = ({*side} if side is not None else None for side in sides)
    if before is None or after is None or before == after:
        return
    lines = (
        f"writes {', '.join(sorted(own))}" if own else "writes no file of its own"
        for own in (before - after, after - before)
    )
    yield Sighting("save_pretrained", side_lines(case, *lines), saver=case.capture.cell.stack)


def _part(*codes: str) -> Check:
    """Return a check for what lies beside a model: what is lost in these ways."""

    def check(case: Case) -> Iterator[Sighting]:
        answer, loader = CROSSINGS.in_row(case.answers), case.capture.cell.stack
        for part in answer.parts if answer is not None else ():
            if part.loader == loader and (ways := _ways(part).keys() & set(codes)):
                lines = [
                    line for way in sorted(ways) for line in _lines_of_part(part, _ways(part)[way])
                ]
                yield Sighting(f"{part.part} saved by {part.saver}", tuple(lines), saver=part.saver)

    return check


def _ways(part: PartCrossing) -> dict[str, tuple[OperationComparison, ...]]:
    """Return the ways in which a part is lost, with the operations that show each.

    What a processor gives otherwise in the loader whoever saved it is a finding of the question processors,
    which tells rounding from another function.
    """
    if not part.is_loss or (part.failure is not None and part.failure.may_be_the_machine):
        return {}
    own = {TOKENIZER: TOKENIZER, ALONE: TOKENIZER, GENERATION: GENERATION}
    kind = own.get(part.part, "processor")
    if part.saver == part.loader:
        return {"same release": part.differences}
    if part.outcome == "save failed":
        return {}  # a finding of the saver
    if part.outcome == "load failed":
        return {f"{kind} does not load": ()}
    chat = tuple(d for d in part.differences if d.operation in OF_CHAT)
    rest = tuple(d for d in part.differences if d.operation not in OF_CHAT)
    ways = {f"{kind}, {part.outcome}": rest, f"chat template, {part.outcome}": chat}
    return {way: differences for way, differences in ways.items() if differences}


def _lines_of_part(
    part: PartCrossing, differences: tuple[OperationComparison, ...]
) -> Iterator[str]:
    yield f"{part.part} saved by {part.saver}, loaded by {part.loader}: {OUTCOMES[part.outcome]}"
    for difference in differences[:_MAX_OPERATIONS]:
        assert difference.first is not None
        where = position_in_words(difference.first)
        yield f"{difference.operation}: {difference.n_differ} of {difference.n_compared} differ, first {where}"
        yield f"{part.saver}, the original: {difference.first.reference}"
        yield f"{part.loader}, the copy: {difference.first.candidate}"
    if len(differences) > _MAX_OPERATIONS:
        names = ", ".join(d.operation for d in differences[_MAX_OPERATIONS:])
        yield f"differ as well: {names}"
    if part.failure is not None:
        yield f"{part.failure.type}: {' '.join(part.failure.message.split()[:_MAX_WORDS])}"


def _first_names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"


RULES = (
    Rule("SB210", _other_files),
    Rule("SB875", _part("tokenizer, other")),
    Rule("SB876", _part("tokenizer, neither")),
    Rule("SB877", _part("tokenizer does not load")),
    Rule("SB878", _part("processor, neither")),
    Rule("SB879", _part("processor does not load")),
    Rule(
        "SB880",
        _part(*(f"generation config{way}" for way in (", other", ", neither", " does not load"))),
    ),
    Rule("SB881", _part("chat template, other", "chat template, neither")),
    Rule("SB882", _part("same release")),
    Rule("SB203", _loses("rope")),
    Rule("SB204", _loses("infinity")),
    Rule("SB206", _loses("tie")),
    Rule("SB207", _loses("other")),
)
