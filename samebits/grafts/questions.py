"""Questions of a graft: what to run to put pieces of the reference into the candidate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field

from samebits.compare.buffers import inv_freq, role
from samebits.compare.describe import some
from samebits.compare.facts import ABSENT
from samebits.compare.forwards import layer_pairs, may_hide_padding, real_rows, same_inputs
from samebits.compare.outcome import differing_items
from samebits.compare.pair import Pair, TensorSource
from samebits.compare.weights import weights as stored_weights
from samebits.diagnose.failing import decides
from samebits.records.capture import Capture, ForwardFacts, WeightFacts
from samebits.records.comparison import CellResult
from samebits.records.graft import Graft
from samebits.records.ids import CellId, Signal, Verdict
from samebits.records.record import Record
from samebits.records.subject import Subject
from samebits.records.tensor import tensor_hash
from samebits.trace.question import TracePhase
from samebits.trace.question import questions as trace_questions

MAX_STEPS = 40
"""Maximum number of compared steps of a decode."""
_GRAFTABLE = {Verdict.UNDECIDED, Verdict.ROUNDING, Verdict.DIVERGED, Verdict.UNSTABLE}
_IGNORED_FIELDS = ("transformers_version", "architectures", "dtype", "torch_dtype", "auto_map")
"""Config fields that only describe the file, or that the variant sets anyway."""


class PatientQuestion(Record):
    """The question to a patient, which runs the same prompt in the same way as its donor."""

    prompt: str
    what: Literal["forward", "decode"]
    forced: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Row -> the tokens of the reference, which generate() is forced to choose."""
    expected: tuple[str, ...] = ()
    """Hash of each output of the candidate's cell; '' if it is not known."""
    compared: tuple[tuple[int, int], ...] = ()
    """Outputs whose bytes must agree, by index on both sides."""
    weights: tuple[tuple[str, str], ...] = ()
    """Tensors in memory with different values, by name on both sides."""
    buffers: tuple[tuple[str, str, float | None], ...] = ()
    """Buffer in the reference, its counterpart in the candidate, and the reference's
    ``attention_scaling`` if it differs."""
    config: dict[str, tuple[Any, Any]] = Field(default_factory=dict)
    """Field -> the values of reference and candidate, for fields that both sides have."""
    untried: tuple[tuple[str, str], ...] = ()
    """Differences that cannot be grafted, with the reason."""


class GraftQuestion(PatientQuestion):
    """The same, with what only the donor needs."""

    donor_expected: tuple[str, ...] = ()
    """Hash of each output of the reference's cell; '' if it is not known."""


class GraftQuestions(NamedTuple):
    """The questions about one pair of cells."""

    reference: CellId
    questions: list[GraftQuestion]


def questions_of(
    result: CellResult, reference: Capture, candidate: Capture, values: TensorSource
) -> list[GraftQuestion]:
    """Return the questions about a cell that differs, simplest first; [] if it does not differ."""
    with_tensors = _with_stored_tensors(result, Pair(reference, candidate, values))
    weights, unpaired_weights = _weights(with_tensors, reference, candidate)
    config, unpaired_fields = _config(result)
    common = GraftQuestion(
        prompt="",
        what="forward",
        weights=tuple(weights),
        buffers=tuple(_buffers(with_tensors, reference, candidate)),
        config=config,
        untried=(*unpaired_weights, *unpaired_fields),
    )
    graft_questions = []
    for question in trace_questions(result, reference) or _questions_of_unstable(
        result, Pair(reference, candidate, values)
    ):
        if question.what == "forward":
            graft_question = _forward_question(question.prompt, reference, candidate)
        else:
            graft_question = _decode_question(
                question.prompt, tuple(question.forced), reference, candidate, values
            )
        if graft_question.compared:
            fields = graft_question.model_dump(exclude_unset=True)
            graft_questions.append(common.model_copy(update=fields))
    distances = _logit_distances(result)
    # the forward with the largest distance first: if nothing restores it, no other is tried
    graft_questions.sort(
        key=lambda graft_question: (
            not decides(result, graft_question.prompt, graft_question.what),
            graft_question.what == "decode",
            _is_padded(_forward_facts(reference, graft_question.prompt)),
            -distances.get(graft_question.prompt, 0.0) if graft_question.what == "forward" else 0.0,
        )
    )
    return graft_questions


def _is_padded(forward: ForwardFacts | None) -> bool:
    """Return True for a forward with padding; False for none, of a prompt that was only generated from."""
    return forward is not None and forward.real_rows is not None


def _logit_distances(result: CellResult) -> dict[str, float]:
    """Return prompt -> maximum distance of the logits of its forward."""
    return {
        item.subject.prompt: item.metrics.max_abs
        for signal in result.signals
        if signal.signal == "logits"
        for item in signal.items
        if item.metrics is not None
    }


def _questions_of_unstable(result: CellResult, pair: Pair) -> list[TracePhase]:
    """Return the questions about an unstable cell, whose missing tensors can be grafted, too."""
    if result.judged is not Verdict.UNSTABLE:
        return []
    prompts = [p for p in pair.prompts if None not in pair.forwards(p) and same_inputs(pair, p)]
    forwards = pair.reference.signals.forward or {}
    prompts.sort(key=lambda prompt: forwards[prompt].real_rows is not None)
    return [TracePhase(prompt, "forward", {}) for prompt in prompts]


def _forward_question(prompt: str, reference: Capture, candidate: Capture) -> GraftQuestion:
    forwards = _forward_facts(reference, prompt), _forward_facts(candidate, prompt)
    reference_forward, candidate_forward = forwards
    if reference_forward is None or candidate_forward is None:
        return GraftQuestion(prompt=prompt, what="forward")
    positions = [
        {id(layer): i for i, layer in enumerate(side.hidden_states)}
        for side in (reference_forward, candidate_forward)
    ]
    compared = [
        (positions[0][id(reference_layer)], positions[1][id(candidate_layer)])
        for _, reference_layer, candidate_layer in layer_pairs(
            reference_forward.hidden_states, candidate_forward.hidden_states
        )
        if reference_layer is not None
        and candidate_layer is not None
        and (
            real_rows(reference_forward, reference_layer.ref) is not None
            or not may_hide_padding((reference_forward, candidate_forward), reference_layer.ref)
        )
    ]
    if reference_forward.logits is not None and candidate_forward.logits is not None:
        compared.append(
            (len(reference_forward.hidden_states), len(candidate_forward.hidden_states))
        )
    return GraftQuestion(
        prompt=prompt,
        what="forward",
        donor_expected=tuple(_hashes(reference_forward)),
        expected=tuple(_hashes(candidate_forward)),
        compared=tuple(sorted(compared)),
    )


def _forward_facts(capture: Capture, prompt: str) -> ForwardFacts | None:
    return (capture.signals.forward or {}).get(prompt)


def _hashes(facts: ForwardFacts) -> Iterator[str]:
    yield from (layer.ref.hash for layer in facts.hidden_states)
    if facts.logits is not None:
        yield facts.logits.hash


def _decode_question(
    prompt: str,
    rows: Sequence[str],
    reference: Capture,
    candidate: Capture,
    values: TensorSource,
) -> GraftQuestion:
    """Return the question about all steps: a restored cell computes every step of the reference."""
    decodes = reference.signals.greedy or {}
    forced = {row: decodes[row].ids[:MAX_STEPS] for row in rows if row in decodes}
    steps = [(row, step) for row, ids in forced.items() for step in range(len(ids))]
    return GraftQuestion(
        prompt=prompt,
        what="decode",
        forced=forced,
        donor_expected=tuple(
            _step_hash(reference, row, step, forced, values) for row, step in steps
        ),
        expected=tuple(_step_hash(candidate, row, step, forced, values) for row, step in steps),
        compared=tuple((i, i) for i in range(len(steps))),
    )


def _step_hash(
    capture: Capture,
    row: str,
    step: int,
    forced: Mapping[str, Sequence[int]],
    values: TensorSource,
) -> str:
    """Return the hash of one step's logits; '' if it is unknown or follows different tokens."""
    facts = (capture.signals.greedy or {}).get(row)
    if facts is None or facts.logits is None or not values.has(facts.logits):
        return ""
    if step >= len(facts.ids) or facts.ids[:step] != tuple(forced[row][:step]):
        return ""
    logits = values.tensor(facts.logits)[step]
    return tensor_hash(facts.logits.dtype, logits.shape, logits.tobytes())


# --- what differs ------------------------------------------------------------------------------


def _with_stored_tensors(result: CellResult, pair: Pair) -> CellResult:
    """Return a result with the comparison of stored tensors, which an unstable cell's result lacks.

    Randomly initialized tensors differ from load to load, and the graft can supply missing ones.
    """
    if result.judged is not Verdict.UNSTABLE:
        return result
    return result.model_copy(update={"signals": (stored_weights(pair), inv_freq(pair))})


def _differing_subjects(result: CellResult, signal: Signal) -> Iterator[Subject]:
    return (item.subject for item in differing_items(result.signals, signal))


def _weights(
    result: CellResult, reference: Capture, candidate: Capture
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the tensors to exchange, and those without one counterpart of the same shape."""
    pairs: dict[tuple[str, str], None] = {}
    unpaired: list[tuple[str, str]] = []
    for item in _differing_subjects(result, "weights"):
        reference_tensors, candidate_tensors = (
            _tensors_of_item(reference, item),
            _tensors_of_item(candidate, item),
        )
        fitting = [
            (reference_name, candidate_name)
            for reference_name, reference_facts in reference_tensors.items()
            for candidate_name, candidate_facts in candidate_tensors.items()
            if reference_facts.ref.shape == candidate_facts.ref.shape
            and reference_facts.layout == candidate_facts.layout
        ]
        matches = [pair for pair in fitting if pair[0] == pair[1]] or fitting
        if len(matches) == 1 or (
            matches
            and all(reference_name == candidate_name for reference_name, candidate_name in matches)
        ):
            pairs.update(dict.fromkeys(matches))
        else:
            unpaired.append(
                (f"weight {item}", "no single tensor of the same shape holds it on both sides")
            )
    return list(pairs), unpaired


def _tensors_of_item(capture: Capture, item: Subject) -> dict[str, WeightFacts]:
    """Return the tensors in memory for an item, found by their name or a checkpoint tensor's."""
    names = set(item.names)
    return {
        name: facts
        for name, facts in capture.signals.tensors.items()
        if names & {name, *facts.aliases, *(piece.tensor for piece in facts.pieces)}
    }


def _buffers(
    result: CellResult, reference: Capture, candidate: Capture
) -> Iterator[tuple[str, str, float | None]]:
    """Yield differing rotary frequencies, with every candidate buffer that holds the same bytes."""
    reference_buffers, candidate_buffers = (
        reference.signals.inv_freq or {},
        candidate.signals.inv_freq or {},
    )
    for item in _differing_subjects(result, "inv_freq"):
        reference_name, candidate_name = item.tensor, item.counterpart or item.tensor
        if reference_name not in reference_buffers or candidate_name not in candidate_buffers:
            continue
        candidate_facts = candidate_buffers[candidate_name]
        scaling = reference_buffers[reference_name].attention_scaling
        different_scaling = scaling if scaling != candidate_facts.attention_scaling else None
        for name, facts in candidate_buffers.items():
            if facts.ref.hash == candidate_facts.ref.hash and role(name) == role(candidate_name):
                yield reference_name, name, different_scaling


def _config(
    result: CellResult,
) -> tuple[dict[str, tuple[Any, Any]], list[tuple[str, str]]]:
    """Return fields with two values, and the reasons for fields that only one side has."""
    changed = {
        change.what: change
        for change in result.changes.get("config", ())
        if change.what.partition(".")[0] not in _IGNORED_FIELDS
    }
    shared = {
        name: (change.reference, change.candidate)
        for name, change in changed.items()
        if ABSENT not in (change.reference, change.candidate)
    }
    unpaired = []
    for in_candidate, side in ((True, "the reference's"), (False, "this release's")):
        names = [
            name
            for name, change in changed.items()
            if name not in shared and (change.reference == ABSENT) == in_candidate
        ]
        if names:
            fields = "config fields" if len(names) > 1 else "config field"
            unpaired.append((f"{fields} {some(names, 6)}", f"{side} config has no such field"))
    return shared, unpaired


# --- asking ------------------------------------------------------------------------------------


async def grafts_of(
    results: Sequence[CellResult],
    runs: Mapping[CellId, tuple[Capture, ...]],
    values: TensorSource,
    graft_cells: Callable[
        [Mapping[CellId, GraftQuestions]], Awaitable[Mapping[CellId, Graft | str]]
    ],
    chosen: Container[CellId] | None = None,
    known: Mapping[CellId, Graft | str] | None = None,
) -> dict[CellId, Graft | str]:
    """Return the graft of every cell that differs, or why none was tried.

    ``chosen`` are the cells to consider, None for all. ``known`` are results of earlier runs.
    """
    known = known or {}
    differing = [r for r in results if _can_be_grafted(r) and (chosen is None or r.cell in chosen)]
    questions = {
        result.cell: GraftQuestions(result.reference, cell_questions)
        for result in differing
        if result.reference is not None
        and result.cell not in known
        and (
            cell_questions := questions_of(
                result, runs[result.reference][0], runs[result.cell][0], values
            )
        )
    }
    grafts = await graft_cells(questions) if questions else {}
    return {r.cell: known[r.cell] for r in differing if r.cell in known} | dict(grafts)


def _can_be_grafted(result: CellResult) -> bool:
    finished = result.unfinished is None
    return (
        finished and result.compared in _GRAFTABLE and result.reference not in {None, result.cell}
    )


def with_graft(result: CellResult, graft: Graft | str | None) -> CellResult:
    """Return a result with its graft, or a note on why there is none; None adds nothing."""
    if isinstance(graft, str):
        note = f"nothing was swapped between the releases: {graft}"
        return result.model_copy(update={"notes": (*result.notes, note)})
    return result.model_copy(update={"graft": graft and _with_place(result, graft)})


def _with_place(result: CellResult, graft: Graft) -> Graft:
    """Return a graft that says whether it restores what decides."""
    more = tuple(_with_place(result, each) for each in graft.more)
    update = {"decides": decides(result, graft.prompt, graft.what), "more": more}
    return graft.model_copy(update=update)
