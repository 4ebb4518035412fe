"""The jobs that the precision ladder gives to a pair of cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import Field

from samebits.compare.pair import TensorSource
from samebits.compare.phases import word_and_prompt
from samebits.compare.probes import differing
from samebits.ladder.alignment import to_align
from samebits.ladder.constants import constants
from samebits.ladder.decodes import decoded_prompts, differing_prompts, repeats, rows_of
from samebits.records.capture import Capture
from samebits.records.comparison import SignalComparison
from samebits.records.ids import Signal
from samebits.records.ladder import Constant, LadderFile
from samebits.records.record import Record
from samebits.records.subject import Subject
from samebits.records.tensor import ITEM_SIZES, TensorRef


class Ask(Record):
    """The job of one cell on the ladder."""

    forced: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Row -> the tokens that generate() is forced to choose: those of the reference."""
    rounded: dict[str, str] = Field(default_factory=dict)
    """Tensor in memory -> the smaller dtype in which the other side holds it."""
    again: tuple[str, ...] = ()
    """What to compute again with all tensors aligned in memory, such as ``forward short`` or
    ``decode short``."""
    observed: dict[str, dict[str, TensorRef]] = Field(default_factory=dict)
    """Element of :attr:`again` -> prompt or decoded row -> its logits in the cell's own run."""
    decodes: tuple[str, ...] | None = None
    """Prompts to decode on every rung; None for all."""
    own_decodes: tuple[str, ...] | None = None
    """Those of them to decode in the own dtype, too; None for all."""
    is_whole: bool = False
    """Nothing is taken from the cell's own run."""
    probes: tuple[Signal, ...] = ()
    """Files of the user's whose probes to run in float32 and float64."""
    float32: bool = False
    """Compute the float32 rung of a large model of a smaller dtype, which is left out at first."""
    tables: bool = False
    """Compute a model's own tables again in float64. A table that was rounded when the model was
    made leaves a part of the difference to code that evaluates its formula."""


def asks(
    reference: Capture,
    candidate: Capture,
    signals: tuple[SignalComparison, ...],
    values: TensorSource,
) -> tuple[Ask, Ask] | None:
    """Return the jobs of the reference and the candidate; None if the inputs decide already.

    The ladder also runs where the constants have decided, because its figures are worth showing.
    """
    inputs = next((s for s in signals if s.signal == "inputs"), None)
    if inputs is None or inputs.outcome == "differs":
        return None
    forced = {row: facts.ids for row, facts in (reference.signals.greedy or {}).items()}
    casts = [constant for constant in constants(signals, values) if constant.kind == "cast"]
    probes = differing(signals, reference, candidate)
    what = to_align(reference, signals)
    decodes = differing_prompts(reference, candidate)
    sides = ((reference, candidate, "candidate"), (candidate, reference, "reference"))
    reference_ask, candidate_ask = (
        Ask(
            forced=forced,
            rounded=dict(_rounded_tensors(casts, side, other_side, coarser)),
            again=(what,) if what else (),
            observed={what: _observed(side, forced, what)} if what else {},
            decodes=decodes,
            probes=probes,
        )
        for side, other_side, coarser in sides
    )
    return reference_ask, candidate_ask


def _observed(
    capture: Capture, forced: dict[str, tuple[int, ...]], what: str
) -> dict[str, TensorRef]:
    """Return the logits of a cell's own run that the ladder should see again before it aligns.

    Rows that chose other tokens than the forced ones are left out.
    """
    kind, prompt = word_and_prompt(what)
    if kind == "forward":
        facts = (capture.signals.forward or {}).get(prompt)
        return {prompt: facts.logits} if facts is not None and facts.logits is not None else {}
    greedy = capture.signals.greedy or {}
    return {
        row: logits
        for row in rows_of(capture, forced, prompt)
        if row in greedy
        and greedy[row].ids == forced[row]
        and (logits := greedy[row].logits) is not None
    }


def merged(asks: Iterable[Ask]) -> list[Ask]:
    """Return for each job of one cell the job that does it and what others of the cell share.

    A reference has one job for each candidate. They differ in the decodes and in what is computed
    again, and one job with all of it serves each.
    """
    asks = list(asks)
    return [_union([ask for ask in asks if _core(ask) == _core(job)]) for job in asks]


def _core(ask: Ask) -> Ask:
    """Return the part of a job that must be equal in jobs that are merged."""
    return ask.model_copy(update={"again": (), "observed": {}, "decodes": None, "probes": ()})


def _union(asks: list[Ask]) -> Ask:
    decodes = [prompt for ask in asks for prompt in ask.decodes or ()]
    needs_all = any(ask.decodes is None for ask in asks)
    return asks[0].model_copy(
        update={
            "again": tuple(dict.fromkeys(what for ask in asks for what in ask.again)),
            "observed": {what: refs for ask in asks for what, refs in ask.observed.items()},
            "decodes": None if needs_all else tuple(dict.fromkeys(decodes)),
            "probes": tuple(dict.fromkeys(name for ask in asks for name in ask.probes)),
        }
    )


def whole(ask: Ask) -> Ask:
    """Return the job with all decodes on every rung, the own dtype's included."""
    return ask.model_copy(update={"decodes": None, "own_decodes": None, "is_whole": True})


def without_known(ask: Ask, capture: Capture, values: TensorSource) -> Ask:
    """Return the job of a cell without the decodes that its own run has made already.

    A decode that follows the same prompts as in the cell's own run is known from it. One that
    follows fewer must give the bits of the own run: that shows that the prompts left out leave no
    state that it depends on.
    """
    if ask.is_whole:
        return ask
    prompts = decoded_prompts(capture, ask.forced)
    chosen = [prompt for prompt in prompts if ask.decodes is None or prompt in ask.decodes]
    skipped = [prompt for prompt in prompts if prompt not in chosen]
    unknown = [prompt for prompt in chosen if not _is_known(ask, capture, values, prompt)]
    later = prompts[prompts.index(skipped[0]) :] if skipped else []
    checks = [prompt for prompt in chosen if prompt in later and prompt not in unknown]
    if len(checks) > len(skipped):  # the checks would cost more than they save
        return without_known(ask.model_copy(update={"decodes": None}), capture, values)
    own = tuple(prompt for prompt in chosen if prompt in unknown or prompt in checks)
    decodes = tuple(chosen) if skipped else None
    return ask.model_copy(update={"decodes": decodes, "own_decodes": own})


def is_repeated(file: LadderFile, capture: Capture, ask: Ask, values: TensorSource) -> bool:
    """Return False if the decodes of a job depend on a prompt that it left out."""
    if ask.decodes is None or file.failure is not None:
        return True
    return repeats(file, capture, ask.forced, ask.own_decodes or (), values)


def _is_known(ask: Ask, capture: Capture, values: TensorSource, prompt: str) -> bool:
    """Return True if the own run has the logits of every forced token of a prompt."""
    greedy = capture.signals.greedy or {}
    return all(
        row in greedy
        and greedy[row].ids == ask.forced[row]
        and (logits := greedy[row].logits) is not None
        and values.has(logits)
        for row in rows_of(capture, ask.forced, prompt)
    )


def _rounded_tensors(
    casts: Iterable[Constant], finer: Capture, coarser: Capture, side: str
) -> Iterator[tuple[str, str]]:
    """Yield the tensors of ``finer`` that the other side holds in a smaller dtype, and which."""
    for cast in casts:
        if cast.coarser != side:
            continue
        smaller = next((ref.dtype for _, ref in _carriers(coarser, cast.subject)), None)
        for name, ref in _carriers(finer, cast.subject):
            if smaller is not None and _element_size(ref.dtype) > _element_size(smaller):
                yield name, smaller


def _element_size(dtype: str) -> int:
    return ITEM_SIZES[dtype]


def _carriers(capture: Capture, subject: Subject) -> Iterator[tuple[str, TensorRef]]:
    """Yield the tensors in memory that a subject names, by their checkpoint names too."""
    names = set(subject.names)
    for tensor, facts in capture.signals.tensors.items():
        tensor_names = {tensor, *facts.aliases, *(piece.tensor for piece in facts.pieces)}
        if tensor_names & names:
            yield tensor, facts.ref
    for tensor, buffer in (capture.signals.buffers or {}).items():
        if tensor in names:
            yield tensor, buffer.ref
