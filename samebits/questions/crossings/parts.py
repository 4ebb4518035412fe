"""What was saved beside a model: what it gives in its loader, compared with what it gave in its saver.

Where it is not the same, a third answer tells why: what the loader gives for the original. If that is the
same as the copy's, the two releases read any files of this kind otherwise, which other findings name.
If it is not, the copy gives what neither release gives for the original.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from samebits.questions.crossings.records import (
    LoadedPart,
    PartCrossing,
    PartOutcome,
    SavedModel,
    SavedPart,
)
from samebits.questions.texts.compare import (
    BARE,
    CHAT_IDS,
    DECODING,
    ENCODE,
    TEXT,
    compared,
    comparisons,
    differences,
)
from samebits.questions.texts.records import (
    OperationComparison,
    Outcomes,
    Place,
    TextsSignal,
    Value,
)

if TYPE_CHECKING:
    Facts = Mapping[str, Outcomes]

TOKENIZER, GENERATION = "tokenizer", "generation config"
ALONE = "tokenizer without config.json"
"""The tokenizer of a copy in a folder of its own; there is an answer only where it gives something else there."""
OF_CHAT = ("template", TEXT, CHAT_IDS, "prompt")
"""Operations on conversations; the last one is a processor's. How a release cuts behind a continued message is
its own affair."""
_OF_TOKENIZERS = frozenset(
    {
        *(ENCODE, BARE, "offsets", "tokens of ids", "pair", "batch", "attention mask of a batch"),
        *DECODING,
        *OF_CHAT,
    }
)
"""Operations whose results the files decide. What the others return follows from the release as well: the
types of results, and the arguments' defaults."""

OUTCOMES: dict[PartOutcome, str] = {
    "same": "the same as in its saver",
    "other": "not as in its saver, but as the loader gives for the original, too",
    "neither": "what neither release gives for the original",
    "load failed": "does not load, and the original does",
    "save failed": "the save fails",
    "absent": "saver or loader cannot load the original",
    "not tried": "not tried",
}


def part_crossings(
    savers: Mapping[str, SavedModel], loader: str, loaded: tuple[LoadedPart, ...] | None
) -> dict[str, tuple[PartCrossing, ...]]:
    """Return the crossings into one loader of all that was saved beside the models, by saver."""
    answers = {(entry.saver, entry.part): entry for entry in loaded or ()}

    def crossings(saver: str, parts: Mapping[str, SavedPart]) -> Iterator[PartCrossing]:
        alone = [(ALONE, TOKENIZER)] if (saver, ALONE) in answers else []
        for name, known_as in [*((name, name) for name in parts), *alone]:
            copy, original = answers.get((saver, name)), answers.get(("", known_as))
            fields = _crossing(parts[known_as], copy, original, known_as)
            yield PartCrossing.model_validate(
                {"saver": saver, "loader": loader, "part": name, **fields}
            )

    return {saver: tuple(crossings(saver, record.parts)) for saver, record in savers.items()}


def _crossing(
    saved: SavedPart, copy: LoadedPart | None, original: LoadedPart | None, name: str
) -> dict[str, object]:
    """Return the fields of the crossing of one part."""
    if saved.outcome == "failed":
        return {"outcome": "save failed", "failure": saved.failure}
    if saved.outcome == "not loaded":
        why = saved.failure.in_short if saved.failure is not None else ""
        return {"outcome": "absent", "reason": f"the saver cannot load the original's: {why}"}
    if copy is None:
        return {"outcome": "not tried", "reason": "the job ended before it came to it"}
    if copy.outcome == "same":
        return {"outcome": "same"}
    is_loaded = original is not None and original.outcome != "load failed"
    if copy.outcome == "load failed":
        if is_loaded:
            return {"outcome": "load failed", "failure": copy.failure}
        return {
            "outcome": "absent",
            "reason": "the loader cannot load the original's",
            "failure": copy.failure,
        }
    assert original is not None
    differing = _differing(name, saved.facts, copy.facts)
    if not differing:
        return {"outcome": "same"}
    if not is_loaded:
        return {
            "outcome": "other",
            "differences": differing,
            "reason": "the loader cannot load the original's",
        }
    own = _both(name, saved.facts, copy.facts, original.facts)
    neither = tuple(d for d in differing if d.operation in own)
    if neither:
        return {"outcome": "neither", "differences": neither}
    return {"outcome": "other", "differences": differing}


def _differing(name: str, saver: Facts, copy: Facts) -> tuple[OperationComparison, ...]:
    """Return the operations whose results the saver does not have."""
    if name == GENERATION:
        return _changed_settings(saver["values"], copy["values"])
    if name == TOKENIZER:
        lost = "conversations" in saver and "conversations" not in copy
        compared_texts = comparisons(_signal(saver), _signal(copy))
        compared_texts = tuple(o for o in compared_texts if o.operation in _OF_TOKENIZERS)
        return tuple(o for o in compared_texts if o.n_differ) + ((_LOST_TEMPLATE,) if lost else ())
    calls = saver["calls"], copy["calls"]
    # what is raised in the saver alone is no loss
    return tuple(
        o
        for o in compared(*calls)
        if any(not d.reference.raised for d in differences(o.operation, *calls))
    )


_LOST_TEMPLATE = OperationComparison(
    operation="template",
    n_compared=1,
    n_differ=1,
    first=Place(case="default", position=(), reference="a chat template", candidate="none"),
)


def _signal(facts: Facts) -> TextsSignal:
    return TextsSignal(corpus=facts.get("texts"), conversations=facts.get("conversations"))


def _both(name: str, saver: Facts, copy: Facts, original: Facts) -> set[str]:
    """Return the operations with a case that is neither as in the saver nor as of the loader's original."""
    if name == GENERATION:
        return {o.operation for o in _changed_settings(saver["values"], copy["values"])} & {
            o.operation for o in _changed_settings(original["values"], copy["values"])
        }
    groups = [(saver[g], copy[g], original[g]) for g in saver if g in copy and g in original]
    operations = {
        operation
        for a, b, c in groups
        for operation in b.operations
        if _cases(operation, a, b) & _cases(operation, c, b)
    }
    lost = "conversations" in saver and "conversations" not in copy and "conversations" in original
    return operations | ({"template"} if lost else set())


def _cases(operation: str, side: Outcomes, copy: Outcomes) -> set[str]:
    return {difference.case for difference in differences(operation, side, copy)}


def _changed_settings(saver: Outcomes, copy: Outcomes) -> tuple[OperationComparison, ...]:
    """Return the settings that one of the files states, and that have another value in the loader.

    What no file states is the default of a release, which may move, whoever saved.
    """
    stated = {**saver.operations.get("stated", {}), **copy.operations.get("stated", {})}
    return tuple(
        OperationComparison(
            operation=field,
            n_compared=1,
            n_differ=1,
            first=Place(
                case=field, position=(), reference=_text(values[0]), candidate=_text(values[1])
            ),
        )
        for field in sorted(stated)
        for values in [(saver.value("value", field), copy.value("value", field))]
        if values[0] != values[1]
    )


def _text(value: Value | None) -> str:
    return "not set" if value is None else value.text or ""
