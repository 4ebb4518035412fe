"""Which relations must hold inside one model, each as pairs of ways to compute the same rows.

Every relation is one function from a subject to its cases, smallest shape first. The lengths
are those that kernels and masks are known to stumble over: one past a block of 32, 64 or 128,
past the sliding window, one token, and the last one. With ``sweep``, all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits_probe.model import forks
from samebits_probe.model.inputs import past_window
from samebits_probe.relations.ways import Subject, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Span = tuple[int, int, int]
"""Row of the batch, first position, and the position after the last."""

SHORT, LONG = 33, 40
"""One past a block of 32, and a length that is no multiple of one."""
_SWEPT = 130
"""A sweep pads to every length up to here: all residues of 32, 64 and 128."""
_LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")


class Case(NamedTuple):
    """Two ways, and where in each the rows stand that must agree."""

    label: str
    one: Way
    other: Way
    spans: tuple[Span, ...]
    other_spans: tuple[Span, ...] = ()
    """The same as ``spans`` unless given."""


class Relation(NamedTuple):
    """A relation's name, what a model needs for it, and its cases."""

    name: str
    needs: tuple[str, ...]
    cases: Callable[[Subject, bool], Iterator[Case]]
    of_cache: bool = False


def lengths(subject: Subject) -> tuple[int, ...]:
    """Return the lengths to try, within what the model has positions for."""
    window = past_window(subject.text)
    wanted = {SHORT, LONG, *([window] if window <= _SWEPT else [])}
    return tuple(n for n in sorted(wanted) if n <= longest(subject)) or (longest(subject),)


def longest(subject: Subject) -> int:
    """Return how many positions the model has; rotary ones have no end."""
    if forks.rope_settings(subject.text).get("rope_theta") is not None:
        return 1 << 20
    fields = [getattr(subject.text, name, None) for name in _LENGTH_FIELDS]
    return min((n - 2 for n in fields if isinstance(n, int) and n > 2), default=1 << 20)


def full_and_decode(subject: Subject, sweep: bool) -> Iterator[Case]:
    """Feed all tokens at once; feed all but the last, then the last through the cache."""
    swept = range(2, min(_SWEPT, longest(subject))) if sweep else lengths(subject)
    for n in swept:
        full = Way((subject.prompt("row 0", n),), cached=False)
        cut = full._replace(cached=True, cuts=(n - 1,))
        yield Case(f"{n} tokens, split at {n - 1}", full, cut, ((0, n - 1, n),))
    n = lengths(subject)[-1]
    full = Way((subject.prompt("row 0", n),), cached=False)
    singly = full._replace(cached=True, cuts=tuple(range(n - 7, n)))
    yield Case(f"{n} tokens, the last 7 one by one", full, singly, ((0, n - 7, n),))
    if not subject.encoder_decoder and forks.takes_static_cache(subject.model):
        label = f"{n} tokens, the last 7 one by one, static cache"
        yield Case(label, full, singly._replace(static=True), ((0, n - 7, n),))


def split_anywhere(subject: Subject, sweep: bool) -> Iterator[Case]:
    """Feed the rest as one chunk, or as several, behind a cache; every position of it."""
    for n in lengths(subject)[-1:]:
        full = Way((subject.prompt("row 0", n),), cached=False)
        for k in range(1, n) if sweep else sorted({1, n // 2, n - 1}):
            cut = full._replace(cached=True, cuts=(k,))
            yield Case(f"{n} tokens, split at {k}", full, cut, ((0, k, n),))
        cuts = (n // 4, n // 2, n - 3)
        cut = full._replace(cached=True, cuts=cuts)
        yield Case(f"{n} tokens, split at {cuts}", full, cut, ((0, cuts[0], n),))


def verify_and_decode(subject: Subject, sweep: bool) -> Iterator[Case]:
    """Feed one token behind a cache, alone or with more after it: speculative decoding."""
    most = lengths(subject)[-1] + 16
    pasts = range(1, most - 16) if sweep else (n - 8 for n in lengths(subject))
    for past in pasts:
        for chunk in (2, 8, 16) if sweep else (2, 8):
            ids = subject.prompt("row 0", past + chunk)
            alone = Way((ids[: past + 1],), cuts=(past,))
            label = f"{past} tokens cached, {chunk} verified at once"
            if past + chunk <= longest(subject):
                yield Case(label, alone, Way((ids,), cuts=(past,)), ((0, past, past + 1),))


def cache_contents(subject: Subject, sweep: bool) -> Iterator[Case]:
    """Fill the cache in one pass, or in two."""
    for n in lengths(subject)[-1:]:
        once = Way((subject.prompt("row 0", n),))
        for k in range(1, n) if sweep else (n // 2, n - 1):
            twice = once._replace(cuts=(k,))
            yield Case(f"{n} tokens, split at {k}", once, twice, ((0, k, n),))


def positions_left_out(subject: Subject, sweep: bool) -> Iterator[Case]:  # noqa: ARG001
    """Leave positions and mask to be found out by forward."""
    for n in lengths(subject)[-1:]:
        for cuts in ((n - 1,), (n // 2,)):
            told = Way((subject.prompt("row 0", n),), cuts=cuts)
            bare = told._replace(placed=False)
            yield Case(f"{n} tokens, split at {cuts[0]}", told, bare, ((0, cuts[0], n),))


def _paddings(subject: Subject, sweep: bool) -> Iterator[tuple[int, int]]:
    """Give pairs of real and padded length; several of the padded ones are 1 modulo 32."""
    pairs = [(31, 33), (SHORT, LONG), (LONG, 65)]
    if sweep:
        pairs = [(n - pads, n) for n in range(4, _SWEPT) for pads in (1, 3)]
    for real, padded in pairs:
        if padded <= longest(subject):
            yield real, padded


def left_padding(subject: Subject, sweep: bool) -> Iterator[Case]:
    """Put padding before the tokens: of one row, of one row beside another, before a decode."""
    for real, padded in _paddings(subject, sweep):
        ids, beside, pads = (
            subject.prompt("row 0", real),
            subject.prompt("row 1", padded),
            padded - real,
        )
        alone = Way((ids,), cached=False)
        wide = Way(((_pad(subject),) * pads + ids,), ((0,) * pads + (1,) * real,), cached=False)
        spans = ((0, 0, real),), ((0, pads, padded),)
        label = f"{real} tokens padded to {padded}"
        yield Case(f"{label}, 1 row", alone, wide, *spans)
        mask = ((1,) * padded, *(wide.mask or ()))
        both = wide._replace(rows=(beside, *wide.rows), mask=mask)
        yield Case(f"{label}, beside another row", alone, both, spans[0], ((1, pads, padded),))
        if subject.keyword is not None and not sweep:
            start = alone._replace(cached=True, cuts=(real - 1,))
            cut = both._replace(cached=True, cuts=(padded - 1,))
            last = ((0, real - 1, real),), ((1, padded - 1, padded),)
            yield Case(f"{label}, the last token cached", start, cut, *last)


def right_padding(subject: Subject, sweep: bool) -> Iterator[Case]:
    """Put padding after the tokens, an encoder-decoder's encoder's; the real rows."""
    for real, padded in _paddings(subject, sweep):
        pads = padded - real
        alone = Way((subject.prompt("row 0", real),), cached=False)
        if subject.encoder_decoder:
            wide = alone._replace(encoder_pad=pads)
            label = f"encoder input padded by {pads}, {real} tokens"
            yield Case(label, alone, wide, ((0, 0, real),))
            continue
        mask = ((1,) * real + (0,) * pads,)
        wide = Way((alone.rows[0] + (_pad(subject),) * pads,), mask, cached=False)
        yield Case(f"{real} tokens padded to {padded}", alone, wide, ((0, 0, real),))


def _batch(subject: Subject, n: int) -> tuple[tuple[int, ...], ...]:
    return tuple(subject.prompt(f"row {i}", n) for i in range(3))


def batch_position(subject: Subject, sweep: bool) -> Iterator[Case]:  # noqa: ARG001
    """Put one prompt first and last among the same others."""
    for n in lengths(subject)[-1:]:
        a, b, c = _batch(subject, n)
        first, last = Way((a, b, c), cached=False), Way((c, b, a), cached=False)
        yield Case(f"{n} tokens, row 0 or 2 of 3", first, last, ((0, 0, n),), ((2, 0, n),))


def batch_size(subject: Subject, sweep: bool) -> Iterator[Case]:
    """Feed a prompt alone, or with others of its length."""
    for n in lengths(subject):
        rows = _batch(subject, n)
        alone = Way(rows[:1], cached=False)
        for size in (2, 3, 8) if sweep else (3,):
            batch = Way((rows * 3)[:size], cached=False)
            yield Case(f"{n} tokens, alone or 1 of {size}", alone, batch, ((0, 0, n),))


def row_order(subject: Subject, sweep: bool) -> Iterator[Case]:  # noqa: ARG001
    """Feed the rows of a batch in another order; all rows."""
    for n in lengths(subject)[-1:]:
        a, b, c = _batch(subject, n)
        one, other = Way((a, b, c), cached=False), Way((b, c, a), cached=False)
        spans = tuple((row, 0, n) for row in (0, 1, 2))
        turned = tuple((row, 0, n) for row in (2, 0, 1))
        yield Case(f"{n} tokens, 3 rows turned", one, other, spans, turned)


def causality(subject: Subject, sweep: bool) -> Iterator[Case]:
    """Change later tokens, or cut them off; the rows before them."""
    for n in lengths(subject)[-1:]:
        ids = subject.prompt("row 0", n)
        full = Way((ids,), cached=False)
        for k in range(2, n) if sweep else (n // 2, n - 1):
            changed = ids[:k] + subject.prompt("later", n)[k:]
            other = full._replace(rows=(changed,))
            yield Case(f"{n} tokens, changed from {k} on", full, other, ((0, 0, k),))
            other = full._replace(rows=(ids[:k],))
            yield Case(f"{n} tokens, cut off at {k}", full, other, ((0, 0, k),))


def _pad(subject: Subject) -> int:
    pad = getattr(subject.text, "pad_token_id", None)
    return pad if isinstance(pad, int) and pad >= 0 else 0


RELATIONS = (
    Relation("full forward = prefill + decode", ("decoder", "cache"), full_and_decode),
    Relation("prefill split anywhere", ("decoder", "cache"), split_anywhere),
    Relation("multi-token verify = single-token decode", ("decoder", "cache"), verify_and_decode),
    Relation("cache contents", ("decoder", "cache object"), cache_contents, of_cache=True),
    Relation("position ids left out", ("decoder", "cache"), positions_left_out),
    Relation("left padding", ("decoder only", "mask"), left_padding),
    Relation("right padding", ("mask",), right_padding),
    Relation("batch position", (), batch_position),
    Relation("batch size", (), batch_size),
    Relation("row order", (), row_order),
    Relation("causality", ("decoder",), causality),
)
"""In the order of samebits/records/relations.py; those of tokens stand in relations.tokens."""
