"""Effects of the same argument in two environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from samebits.questions.arguments.records import (
    UNREAD,
    ArgumentDifference,
    ArgumentEffect,
    ArgumentsSignal,
    Kind,
    Method,
)

METHODS: tuple[Method, ...] = ("forward", "generate")
_UNDECIDED = frozenset({"rounding"})
CHANGED = "other numbers"
ENDED = "another shape"
_SAME = 1e-3
"""Share of the largest logit up to which both sides compute the same without an argument, in float32."""
_BAND = 1.0 / 64
"""Share above which they compute something else with it: far above what rounds."""
_SAME_TOKENS = (
    "use_cache",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "assistant_early_exit",
    "assistant_model",
    "cache_implementation",
)
"""Arguments of generate() that compute the same tokens in another way: none has an effect to lose."""
_NO_LOSS = UNREAD | _UNDECIDED
_UNREAD: Mapping[str, Kind] = {**dict.fromkeys(UNREAD, "ignored"), "raises": "refused"}


def differences(
    reference: ArgumentsSignal, candidate: ArgumentsSignal
) -> Iterator[ArgumentDifference]:
    """Yield the arguments that one side reads, and the other one ignores or refuses.

    Nothing is said of an argument that no side names: there is no promise that ``**kwargs`` has an effect. A
    reference that does not name it is of a time before the argument, and has nothing to answer for.
    """
    for method in METHODS:
        first, second = reference.of(method), candidate.of(method)
        for name in (name for name in first if name in second):
            before, after = first[name], second[name]
            kind = _kind(method, before, after) if before.named or after.named else None
            if kind is None and before.named and after.named:
                kind = _kind_of_reference(method, before, after)
            if kind == "ignored" and method == "generate" and name.startswith(_SAME_TOKENS):
                continue
            if kind:
                yield ArgumentDifference(
                    argument=name, method=method, kind=kind, reference=before, candidate=after
                )


class OtherStates(NamedTuple):
    """What the entries of a field hold on two sides, for one prompt."""

    prompt: str
    field: str
    reference: tuple[str, ...]
    candidate: tuple[str, ...]


def other_states(reference: ArgumentsSignal, candidate: ArgumentsSignal) -> Iterator[OtherStates]:
    """Yield the fields of hidden states whose entries hold something else.

    A side whose hooks see none of a field's entries says nothing: its layers are in no list.
    """
    for prompt, fields in reference.states.items():
        others = candidate.states.get(prompt, {})
        for field, before in fields.items():
            after = others.get(field, ())
            if before != after and any(before) and any(after):
                yield OtherStates(prompt, field, before, after)


def masked_otherwise(
    reference: ArgumentsSignal, candidate: ArgumentsSignal
) -> Iterator[tuple[str, ArgumentEffect, ArgumentEffect]]:
    """Yield the prompts of which a mask of ones changes the numbers on one side alone, with both effects.

    A side that raises without the mask or with it says nothing: a mask may be required.
    """
    for prompt in (prompt for prompt in reference.ones if prompt in candidate.ones):
        sides = reference.ones[prompt], candidate.ones[prompt]
        effects = {side.effect for side in sides}
        if CHANGED in effects and len(effects) == 2 and effects & _NO_LOSS:
            yield prompt, *sides


def led_elsewhere(
    reference: ArgumentsSignal, candidate: ArgumentsSignal
) -> Iterator[tuple[Method, str, ArgumentEffect, ArgumentEffect]]:
    """Yield the arguments that lead to other numbers on both sides, or of tokens, and to others on each, with their methods.

    Without the argument both sides must compute the same, so what differs is what they do with it.
    """
    for method in METHODS:
        first, second = reference.of(method), candidate.of(method)
        for name in first:
            if name in second and _leads_elsewhere(first[name], second[name]):
                yield method, name, first[name], second[name]


def ended_elsewhere(
    reference: ArgumentsSignal, candidate: ArgumentsSignal
) -> Iterator[tuple[str, ArgumentEffect, ArgumentEffect]]:
    """Yield the arguments of generate() that compute the same tokens in another way, and on one side fewer or more of them."""
    for name, before in reference.generate.items():
        after = candidate.generate.get(name)
        if after is None or not name.startswith(_SAME_TOKENS):
            continue
        effects = {before.effect, after.effect}
        if before.named and after.named and ENDED in effects and effects & _NO_LOSS:
            yield name, before, after


def _leads_elsewhere(before: ArgumentEffect, after: ArgumentEffect) -> bool:
    if not (before.named and after.named and before.numbers and after.numbers):
        return False
    if before.effect == after.effect == ENDED:  # numbers of tokens
        return before.without == after.without and before.numbers != after.numbers
    if not before.effect == after.effect == CHANGED:
        return False
    is_same = before.message == after.message and _are_close(before.without, after.without, _SAME)
    return is_same and not _are_close(before.numbers, after.numbers, _BAND)


def _are_close(before: tuple[float, ...], after: tuple[float, ...], band: float) -> bool:
    """Return True unless values are further apart than a share of the largest one; False for other shapes."""
    scale = max(map(abs, before[:-1] + after[:-1]), default=0.0)
    norm = max(before[-1:] + after[-1:], default=0.0)
    if len(before) != len(after):
        return False
    near = all(abs(a - b) <= band * scale for a, b in zip(before[:-1], after[:-1], strict=True))
    return near and abs(before[-1] - after[-1]) <= band * norm


def _kind_of_reference(
    method: Method, before: ArgumentEffect, after: ArgumentEffect
) -> Kind | None:
    """Return what the reference does with an argument that the candidate reads.

    None for one without an effect on generate(): a default, such as BART's end that is forced in 4.x, may hide it.
    """
    kind = _kind(method, after, before)
    return None if method == "generate" and kind == "ignored" else kind


def _kind(method: Method, reads: ArgumentEffect, other: ArgumentEffect) -> Kind | None:
    """Return what one release does with an argument that another one reads; None if it reads it, too.

    An argument of generate() may choose another way to the same tokens, so that it has no effect to lose, and
    may be refused still.
    """
    if method == "generate" and reads.effect in _NO_LOSS and other.effect == "raises":
        return "refused"
    if reads.effect in _UNREAD or _UNDECIDED & {reads.effect, other.effect}:
        return None
    return _UNREAD.get(other.effect)
