"""Ways that get different rotary frequencies because the model's rope depends on the length.

"dynamic" and "longrope" compute frequencies from the longest position that a forward sees, and
cached keys are not rotated again (transformers/modeling_rope_utils.py, dynamic_rope_update). Ways
that pass the limit at different steps differ by design.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from samebits_probe.model.scaling import Scaling, scalings
from samebits_probe.questions.relations.ways import Subject, Way


def of_ways(subject: Subject, first: Way, second: Way) -> str:
    """Return why two ways get different frequencies; "" if they do not."""
    first_lengths, second_lengths = _seen_lengths(subject, first), _seen_lengths(subject, second)
    return next(
        (
            _explanation(scaling)
            for scaling in scalings(subject.text)
            if set(map(scaling.scale, first_lengths)) != set(map(scaling.scale, second_lengths))
        ),
        "",
    )


def of_lengths(subject: Subject, lengths: Iterable[int]) -> str:
    """Return why tokens fed one by one get different frequencies; "" if they do not."""
    lengths = list(lengths)
    dependent = scalings(subject.text)
    return next((_explanation(s) for s in dependent if len(set(map(s.scale, lengths))) > 1), "")


def _explanation(scaling: Scaling) -> str:
    return (
        f"by design: this {scaling.kind} rope has other frequencies beyond {scaling.limit} tokens, "
        "and cached keys are not rotated again"
    )


def _seen_lengths(subject: Subject, way: Way) -> list[int]:
    """Return how many positions each forward of a way has seen at its end."""
    stops = (*way.cuts, len(way.rows[0]))
    if way.mask is None or not way.placed or not subject.decodes:
        return list(stops)
    return list(chain(max(sum(row[:stop]) for row in way.mask) for stop in stops))
