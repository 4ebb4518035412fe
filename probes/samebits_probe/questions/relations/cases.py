"""Relations that must hold inside one model, as pairs of ways to compute the same rows.

Every relation is a function from a subject to its cases, smallest shape first. The lengths are
those at which kernels and masks are known to fail: one past a block of 32, 64 or 128, past the
sliding window, one token, and the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from samebits_probe.model import forks
from samebits_probe.model.inputs import pad_id, past_window
from samebits_probe.questions.relations import experts
from samebits_probe.questions.relations.ways import Subject, Way

Span = tuple[int, int, int]
"""Row of the batch, first position, and the position after the last."""

UNPLACED = "left padding, positions left out"
SHORT, LONG = 33, 40
"""One past a block of 32, and a length that is not a multiple of a block."""
_LARGEST_WINDOW = 130
"""Sliding windows up to here are passed."""
_LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")


class Case(NamedTuple):
    """Two ways, and the positions in each of the rows that must agree."""

    label: str
    first: Way
    second: Way
    spans: tuple[Span, ...]
    second_spans: tuple[Span, ...] = ()
    """The same as ``spans`` unless given."""


class Relation(NamedTuple):
    """A relation's name, what a model needs for it, and its cases."""

    name: str
    needs: tuple[str, ...]
    cases: Callable[[Subject], Iterator[Case]]
    of_cache: bool = False


def lengths(subject: Subject) -> tuple[int, ...]:
    """Return the lengths to try, up to the model's number of positions."""
    window = past_window(subject.text)
    candidates = {SHORT, LONG, *([window] if window <= _LARGEST_WINDOW else [])}
    return tuple(n for n in sorted(candidates) if n <= longest(subject)) or (longest(subject),)


def longest(subject: Subject) -> int:
    """Return how many positions the model has; rotary positions have no limit."""
    if forks.rope_settings(subject.text).get("rope_theta") is not None:
        return 1 << 20
    fields = [getattr(subject.text, name, None) for name in _LENGTH_FIELDS]
    return min((n - 2 for n in fields if isinstance(n, int) and n > 2), default=1 << 20)


def full_and_decode(subject: Subject) -> Iterator[Case]:
    """Feed all tokens at once; feed all but the last, then the last through the cache."""
    for n in lengths(subject):
        full = Way((subject.prompt("row 0", n),), cached=False)
        split = full._replace(cached=True, cuts=(n - 1,))
        yield Case(f"{n} tokens, split at {n - 1}", full, split, ((0, n - 1, n),))
    n = lengths(subject)[-1]
    full = Way((subject.prompt("row 0", n),), cached=False)
    one_by_one = full._replace(cached=True, cuts=tuple(range(n - 7, n)))
    yield Case(f"{n} tokens, the last 7 one by one", full, one_by_one, ((0, n - 7, n),))
    if not subject.encoder_decoder and forks.takes_static_cache(subject.model):
        label = f"{n} tokens, the last 7 one by one, static cache"
        yield Case(label, full, one_by_one._replace(static=True), ((0, n - 7, n),))


def split_anywhere(subject: Subject) -> Iterator[Case]:
    """Feed the rest after a cache as one chunk or several; compare every position of it."""
    for n in lengths(subject)[-1:]:
        full = Way((subject.prompt("row 0", n),), cached=False)
        for k in sorted({1, n // 2, n - 1}):
            split = full._replace(cached=True, cuts=(k,))
            yield Case(f"{n} tokens, split at {k}", full, split, ((0, k, n),))
        cuts = (n // 4, n // 2, n - 3)
        split = full._replace(cached=True, cuts=cuts)
        yield Case(f"{n} tokens, split at {cuts}", full, split, ((0, cuts[0], n),))


def verify_and_decode(subject: Subject) -> Iterator[Case]:
    """Feed one token after a cache, with or without more tokens: speculative decoding."""
    for past in (n - 8 for n in lengths(subject)):
        for chunk in (2, 8):
            ids = subject.prompt("row 0", past + chunk)
            single = Way((ids[: past + 1],), cuts=(past,))
            label = f"{past} tokens cached, {chunk} verified at once"
            if past + chunk <= longest(subject):
                yield Case(label, single, Way((ids,), cuts=(past,)), ((0, past, past + 1),))


def cache_contents(subject: Subject) -> Iterator[Case]:
    """Fill the cache in one pass, or in two."""
    for n in lengths(subject)[-1:]:
        once = Way((subject.prompt("row 0", n),))
        for k in (n // 2, n - 1):
            twice = once._replace(cuts=(k,))
            yield Case(f"{n} tokens, split at {k}", once, twice, ((0, k, n),))


def positions_left_out(subject: Subject) -> Iterator[Case]:
    """Leave positions and mask out, so that forward computes them."""
    for n in lengths(subject)[-1:]:
        for cuts in ((n - 1,), (n // 2,)):
            placed = Way((subject.prompt("row 0", n),), cuts=cuts)
            unplaced = placed._replace(placed=False)
            yield Case(f"{n} tokens, split at {cuts[0]}", placed, unplaced, ((0, cuts[0], n),))


def _paddings(subject: Subject) -> Iterator[tuple[int, int]]:
    """Yield pairs of real and padded length; several padded lengths are 1 modulo 32."""
    for real, padded in ((31, 33), (SHORT, LONG), (LONG, 65)):
        if padded <= longest(subject):
            yield real, padded


def left_padding(subject: Subject) -> Iterator[Case]:
    """Put padding before the tokens: in one row, next to another row, before a decode."""
    for real, padded in _paddings(subject):
        ids, neighbour, pads = (
            subject.prompt("row 0", real),
            subject.prompt("row 1", padded),
            padded - real,
        )
        plain = Way((ids,), cached=False)
        padded_way = Way(
            ((pad_id(subject.text),) * pads + ids,), ((0,) * pads + (1,) * real,), cached=False
        )
        spans = ((0, 0, real),), ((0, pads, padded),)
        label = f"{real} tokens padded to {padded}"
        yield Case(f"{label}, 1 row", plain, padded_way, *spans)
        mask = ((1,) * padded, *(padded_way.mask or ()))
        pair_of_rows = padded_way._replace(rows=(neighbour, *padded_way.rows), mask=mask)
        yield Case(
            f"{label}, next to another row", plain, pair_of_rows, spans[0], ((1, pads, padded),)
        )
        if subject.keyword is not None:
            start = plain._replace(cached=True, cuts=(real - 1,))
            split = pair_of_rows._replace(cached=True, cuts=(padded - 1,))
            last = ((0, real - 1, real),), ((1, padded - 1, padded),)
            yield Case(f"{label}, the last token cached", start, split, *last)


def left_padding_unplaced(subject: Subject) -> Iterator[Case]:
    """Leave positions out beside a padded row, as a forward does that no generate() prepares."""
    for case in islice(left_padding(subject), 1):
        first, second = (way._replace(placed=False) for way in (case.first, case.second))
        yield case._replace(first=first, second=second)


def right_padding(subject: Subject) -> Iterator[Case]:
    """Put padding after the tokens, or after the encoder's; compare the real rows."""
    for real, padded in _paddings(subject):
        pads = padded - real
        plain = Way((subject.prompt("row 0", real),), cached=False)
        if subject.encoder_decoder:
            padded_way = plain._replace(encoder_pad=pads)
            label = f"encoder input padded by {pads}, {real} tokens"
            yield Case(label, plain, padded_way, ((0, 0, real),))
            continue
        mask = ((1,) * real + (0,) * pads,)
        padded_way = Way((plain.rows[0] + (pad_id(subject.text),) * pads,), mask, cached=False)
        yield Case(f"{real} tokens padded to {padded}", plain, padded_way, ((0, 0, real),))


def _batch(subject: Subject, n: int) -> tuple[tuple[int, ...], ...]:
    return tuple(subject.prompt(f"row {i}", n) for i in range(3))


def batch_position(subject: Subject) -> Iterator[Case]:
    """Put one prompt first and last in a batch with the same other prompts."""
    for n in lengths(subject)[-1:]:
        a, b, c = _batch(subject, n)
        first, last = Way((a, b, c), cached=False), Way((c, b, a), cached=False)
        yield Case(f"{n} tokens, row 0 or 2 of 3", first, last, ((0, 0, n),), ((2, 0, n),))


def batch_size(subject: Subject) -> Iterator[Case]:
    """Feed a prompt as a single row, or with others of its length."""
    for n in lengths(subject):
        rows = _batch(subject, n)
        single = Way(rows[:1], cached=False)
        batch = Way(rows, cached=False)
        yield Case(f"{n} tokens, alone or 1 of 3", single, batch, ((0, 0, n),))


def row_order(subject: Subject) -> Iterator[Case]:
    """Feed the rows of a batch in another order; compare all rows."""
    for n in lengths(subject)[-1:]:
        a, b, c = _batch(subject, n)
        in_order, turned = Way((a, b, c), cached=False), Way((b, c, a), cached=False)
        spans = tuple((row, 0, n) for row in (0, 1, 2))
        turned_spans = tuple((row, 0, n) for row in (2, 0, 1))
        yield Case(f"{n} tokens, 3 rows turned", in_order, turned, spans, turned_spans)


def causality(subject: Subject) -> Iterator[Case]:
    """Change later tokens, or cut them off; compare the rows before them."""
    for n in lengths(subject)[-1:]:
        ids = subject.prompt("row 0", n)
        full = Way((ids,), cached=False)
        for k in (n // 2, n - 1):
            changed = full._replace(rows=(ids[:k] + subject.prompt("later", n)[k:],))
            yield Case(f"{n} tokens, changed from {k} on", full, changed, ((0, 0, k),))
            changed = full._replace(rows=(ids[:k],))
            yield Case(f"{n} tokens, cut off at {k}", full, changed, ((0, 0, k),))


def experts_turned(subject: Subject) -> Iterator[Case]:
    """Give experts the numbers from the last to the first, in the router as well; nothing without a known router."""
    for n in lengths(subject)[-1:] if experts.blocks(subject.model) else ():
        plain = Way((subject.prompt("row 0", n),), cached=False)
        turned = plain._replace(turned=True)
        yield Case(f"{n} tokens, the last expert first", plain, turned, ((0, 0, n),))


RELATIONS = (
    Relation("full forward = prefill + decode", ("decoder", "cache"), full_and_decode),
    Relation("prefill split anywhere", ("decoder", "cache"), split_anywhere),
    Relation("multi-token verify = single-token decode", ("decoder", "cache"), verify_and_decode),
    Relation("cache contents", ("decoder", "cache object"), cache_contents, of_cache=True),
    Relation("position ids left out", ("decoder", "cache"), positions_left_out),
    Relation("left padding", ("decoder only", "mask"), left_padding),
    Relation(UNPLACED, ("decoder only", "mask"), left_padding_unplaced),
    Relation("right padding", ("mask",), right_padding),
    Relation("batch position", (), batch_position),
    Relation("batch size", (), batch_size),
    Relation("row order", (), row_order),
    Relation("causality", ("decoder", "order"), causality),
    Relation("experts in another order", (), experts_turned),
)
"""In the order of samebits/questions/relations/records.py; relations of tokens are in relations.tokens."""
