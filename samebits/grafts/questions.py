"""What is a pair of cells asked, so that pieces of one can be put into the other?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from samebits.compare.amounts import some
from samebits.compare.buffers import inv_freq, role
from samebits.compare.facts import ABSENT
from samebits.compare.forwards import layer_pairs, may_hide_padding, real_rows, same_inputs
from samebits.compare.outcome import differs
from samebits.compare.pair import Pair
from samebits.compare.weights import weights as stored_weights
from samebits.records.ids import Verdict
from samebits.records.record import Record
from samebits.records.tensor import tensor_hash
from samebits.trace.question import Question, questions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence

    from samebits.compare.pair import TensorSource
    from samebits.records.capture import Capture, ForwardFacts, WeightFacts
    from samebits.records.comparison import CellResult
    from samebits.records.graft import Graft
    from samebits.records.ids import CellId

MOST_STEPS = 40
"""Steps of a decode that are compared."""
_ASKED = {Verdict.DIFFERS, Verdict.ROUNDING, Verdict.DIVERGED, Verdict.UNSTABLE}
_SPELLING = ("transformers_version", "architectures", "dtype", "torch_dtype", "auto_map")
"""Fields of a config that say how it is written, or what the variant asks for anyway."""


class Ask(Record):
    """What donor and patient are asked; both run the same prompt in the same way."""

    prompt: str
    what: Literal["forward", "decode"]
    forced: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Row -> the tokens that generate() is made to choose: the reference's."""
    donor_expected: tuple[str, ...] = ()
    """Hash of each output that the reference's own run gave; '' where it is not known."""
    expected: tuple[str, ...] = ()
    """The same of the candidate."""
    compared: tuple[tuple[int, int], ...] = ()
    """Outputs whose bytes must agree, by place on both sides."""
    weights: tuple[tuple[str, str], ...] = ()
    """Tensors in memory that hold other numbers, by name on both sides."""
    buffers: tuple[tuple[str, str, float | None], ...] = ()
    """Buffers of two names that are the same thing, and another factor on cos and sin."""
    config: dict[str, tuple[Any, Any]] = Field(default_factory=dict)
    """Field -> the reference's value and the candidate's, where both sides have it."""
    untried: tuple[tuple[str, str], ...] = ()
    """What differs and cannot be put in, with the reason."""


class Asked(NamedTuple):
    """What is asked of one pair: the first that gives an answer counts."""

    reference: CellId
    asks: list[Ask]


def asks(
    result: CellResult, reference: Capture, candidate: Capture, values: TensorSource
) -> list[Ask]:
    """Return what to ask of a cell that differs, the plainest prompt first; [] if it does not."""
    held = _with_what_it_holds(result, Pair(reference, candidate, values))
    weights, lost = _weights(held, reference, candidate)
    config, odd = _config(result)
    common = Ask(
        prompt="",
        what="forward",
        weights=tuple(weights),
        buffers=tuple(_buffers(held, reference, candidate)),
        config=config,
        untried=(*lost, *odd),
    )
    found = []
    for question in questions(result, reference) or _of_unstable(
        result, Pair(reference, candidate, values)
    ):
        if question.what == "forward":
            ask = _forward(question.prompt, reference, candidate)
        else:
            ask = _decode(question.prompt, tuple(question.forced), reference, candidate, values)
        if ask.compared:
            own = ask.model_dump(exclude_unset=True)
            found.append(common.model_copy(update=own))
    known, apart = reference.signals.forward or {}, _apart(result)
    # the forward that is farthest apart first: where nothing restores it, no other is tried
    found.sort(
        key=lambda ask: (
            ask.what == "decode",
            known[ask.prompt].real_rows is not None,
            -apart.get(ask.prompt, 0.0) if ask.what == "forward" else 0.0,
        )
    )
    return found


def _apart(result: CellResult) -> dict[str, float]:
    """Return how far the logits of each prompt's forward are apart."""
    return {
        item.name: item.metrics.max_abs
        for signal in result.signals
        if signal.signal == "logits"
        for item in signal.items
        if item.metrics is not None
    }


def _of_unstable(result: CellResult, pair: Pair) -> list[Question]:
    """Return the prompts of a cell that contradicts itself: what it lacks can be given to it, too."""
    if result.judged is not Verdict.UNSTABLE:
        return []
    prompts = [p for p in pair.prompts if None not in pair.forwards(p) and same_inputs(pair, p)]
    known = pair.reference.signals.forward or {}
    prompts.sort(key=lambda prompt: known[prompt].real_rows is not None)
    return [Question(prompt, "forward", {}) for prompt in prompts]


def _forward(prompt: str, reference: Capture, candidate: Capture) -> Ask:
    sides = _of(reference, prompt), _of(candidate, prompt)
    one, other = sides
    if one is None or other is None:
        return Ask(prompt=prompt, what="forward")
    places = [{id(layer): i for i, layer in enumerate(side.hidden_states)} for side in (one, other)]
    compared = [
        (places[0][id(mine)], places[1][id(theirs)])
        for _, mine, theirs in layer_pairs(one.hidden_states, other.hidden_states)
        if mine is not None
        and theirs is not None
        and (real_rows(one, mine.ref) is not None or not may_hide_padding((one, other), mine.ref))
    ]
    if one.logits is not None and other.logits is not None:
        compared.append((len(one.hidden_states), len(other.hidden_states)))
    return Ask(
        prompt=prompt,
        what="forward",
        donor_expected=tuple(_hashes(one)),
        expected=tuple(_hashes(other)),
        compared=tuple(sorted(compared)),
    )


def _of(capture: Capture, prompt: str) -> ForwardFacts | None:
    return (capture.signals.forward or {}).get(prompt)


def _hashes(facts: ForwardFacts) -> Iterator[str]:
    yield from (layer.ref.hash for layer in facts.hidden_states)
    if facts.logits is not None:
        yield facts.logits.hash


def _decode(
    prompt: str,
    rows: Sequence[str],
    reference: Capture,
    candidate: Capture,
    values: TensorSource,
) -> Ask:
    """Return an ask over all steps: put right, a cell makes every step that the reference makes."""
    known = reference.signals.greedy or {}
    forced = {row: known[row].ids[:MOST_STEPS] for row in rows if row in known}
    steps = [(row, step) for row, ids in forced.items() for step in range(len(ids))]
    return Ask(
        prompt=prompt,
        what="decode",
        forced=forced,
        donor_expected=tuple(_step(reference, row, step, forced, values) for row, step in steps),
        expected=tuple(_step(candidate, row, step, forced, values) for row, step in steps),
        compared=tuple((i, i) for i in range(len(steps))),
    )


def _step(
    capture: Capture,
    row: str,
    step: int,
    forced: Mapping[str, Sequence[int]],
    values: TensorSource,
) -> str:
    """Return the hash of one step's logits; '' where it is not known, or follows other tokens."""
    facts = (capture.signals.greedy or {}).get(row)
    if facts is None or facts.logits is None or not values.has(facts.logits):
        return ""
    if step >= len(facts.ids) or facts.ids[:step] != tuple(forced[row][:step]):
        return ""
    logits = values.tensor(facts.logits)[step]
    return tensor_hash(facts.logits.dtype, logits.shape, logits.tobytes())


# --- what differs ------------------------------------------------------------------------------


def _with_what_it_holds(result: CellResult, pair: Pair) -> CellResult:
    """Return a result that says which stored tensors differ: one of an unstable cell says nothing.

    What chance drew into it differs from load to load, and what it lacks can be given to it.
    """
    if result.judged is not Verdict.UNSTABLE:
        return result
    return result.model_copy(update={"signals": (stored_weights(pair), inv_freq(pair))})


def _items(result: CellResult, signal: str) -> Iterator[str]:
    for comparison in result.signals:
        if comparison.signal == signal:
            yield from (item.name for item in comparison.items if differs(item))


def _weights(
    result: CellResult, reference: Capture, candidate: Capture
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the tensors to exchange, and those that no tensor of the same shape stands for."""
    pairs: dict[tuple[str, str], None] = {}
    lost: list[tuple[str, str]] = []
    for item in _items(result, "weights"):
        theirs, mine = _carriers(reference, item), _carriers(candidate, item)
        fitting = [
            (there, here)
            for there, one in theirs.items()
            for here, other in mine.items()
            if one.ref.shape == other.ref.shape and one.layout == other.layout
        ]
        same = [pair for pair in fitting if pair[0] == pair[1]] or fitting
        if len(same) == 1 or (same and all(there == here for there, here in same)):
            pairs.update(dict.fromkeys(same))
        else:
            lost.append(
                (f"weight {item}", "no one tensor of the same shape holds it on both sides")
            )
    return list(pairs), lost


def _carriers(capture: Capture, item: str) -> dict[str, WeightFacts]:
    """Return the tensors in memory that an item speaks of, by its name or a checkpoint tensor's."""
    names = set(item.split(" → "))
    weights = capture.signals.weights
    return {
        own: facts
        for own, facts in (weights.tensors if weights is not None else {}).items()
        if names & {own, *facts.aliases, *(piece.tensor for piece in facts.pieces)}
    }


def _buffers(
    result: CellResult, reference: Capture, candidate: Capture
) -> Iterator[tuple[str, str, float | None]]:
    """Yield rotary frequencies that differ, each with every buffer here that holds the same."""
    theirs, mine = reference.signals.inv_freq or {}, candidate.signals.inv_freq or {}
    for item in _items(result, "inv_freq"):
        there, _, here = item.partition(" → ")
        here = here or there
        if there not in theirs or here not in mine:
            continue
        known = mine[here]
        scaling = theirs[there].attention_scaling
        other = scaling if scaling != known.attention_scaling else None
        for name, facts in mine.items():
            if facts.ref.hash == known.ref.hash and role(name) == role(here):
                yield there, name, other


def _config(
    result: CellResult,
) -> tuple[dict[str, tuple[Any, Any]], list[tuple[str, str]]]:
    """Return the fields that have two values, and what is said of those that only one side has."""
    changed = {
        change.what: change
        for change in result.changes.get("config", ())
        if change.what.partition(".")[0] not in _SPELLING
    }
    both = {
        name: (change.reference, change.candidate)
        for name, change in changed.items()
        if ABSENT not in (change.reference, change.candidate)
    }
    odd = []
    for here, side in ((True, "the reference's"), (False, "this release's")):
        names = [
            name
            for name, change in changed.items()
            if name not in both and (change.reference == ABSENT) == here
        ]
        if names:
            fields = "config fields" if len(names) > 1 else "config field"
            odd.append((f"{fields} {some(names, 6)}", f"{side} config has no such field"))
    return both, odd


# --- asking ------------------------------------------------------------------------------------


async def grafts_of(
    results: Sequence[CellResult],
    runs: Mapping[CellId, tuple[Capture, ...]],
    values: TensorSource,
    ask: Callable[[Mapping[CellId, Asked]], Awaitable[Mapping[CellId, Graft | str]]],
    chosen: Container[CellId] | None = None,
    known: Mapping[CellId, Graft | str] | None = None,
) -> dict[CellId, Graft | str]:
    """Return what swapping pieces shows of every cell that differs, or why none was tried.

    ``chosen`` are the cells that may be asked; None: all. ``known`` are answers of earlier runs.
    """
    known = known or {}
    wanted = [r for r in results if _may_be_asked(r) and (chosen is None or r.cell in chosen)]
    asked = {
        result.cell: Asked(result.reference, told)
        for result in wanted
        if result.reference is not None
        and result.cell not in known
        and (told := asks(result, runs[result.reference][0], runs[result.cell][0], values))
    }
    found = await ask(asked) if asked else {}
    return {r.cell: known[r.cell] for r in wanted if r.cell in known} | dict(found)


def _may_be_asked(result: CellResult) -> bool:
    finished = result.unfinished is None
    return finished and result.compared in _ASKED and result.reference not in {None, result.cell}


def with_graft(result: CellResult, graft: Graft | str | None) -> CellResult:
    """Return a result with its graft, or with a note on why there is none; None: nobody asked."""
    if isinstance(graft, str):
        note = f"nothing was swapped between the releases: {graft}"
        return result.model_copy(update={"notes": (*result.notes, note)})
    return result.model_copy(update={"graft": graft})
