"""Which two ways see other rotary frequencies because the model's rope depends on the length.

"dynamic" and "longrope" compute frequencies from the longest position that a forward sees, and
keys that a cache already holds are not turned again (transformers/modeling_rope_utils.py,
dynamic_rope_update). Ways that pass the limit at other steps differ by design.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from samebits_probe.model import forks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits_probe.relations.ways import Subject, Way


class Scaling(NamedTuple):
    """A rope that depends on the length, and the length beyond which it does."""

    kind: str
    limit: int

    def scale(self, length: int) -> int:
        """Return what is equal for lengths that give the same frequencies."""
        beyond = max(length, self.limit)
        return min(beyond, self.limit + 1) if self.kind == "longrope" else beyond


def scalings(config: Any) -> list[Scaling]:
    """Return the ropes of a model that depend on the length."""
    settings = forks.rope_settings(config)
    found = []
    for one in (settings, *(v for v in settings.values() if isinstance(v, dict))):
        kind, limit = _kind(one), _limit(one, config)
        if kind and limit:
            found.append(Scaling(kind, limit))
    return found


def _kind(settings: dict[str, Any]) -> str:
    kind = str(settings.get("rope_type") or settings.get("type") or "")
    if "dynamic" in kind:
        return "dynamic"
    return "longrope" if kind in {"longrope", "su"} else ""


def _limit(settings: dict[str, Any], config: Any) -> int | None:
    """Return the length that the frequencies were made for."""
    longest = getattr(config, "max_position_embeddings", None)
    if _kind(settings) == "dynamic":
        return longest
    name = "original_max_position_embeddings"
    return settings.get(name) or getattr(config, name, None) or longest


def of_ways(subject: Subject, one: Way, other: Way) -> str:
    """Return why two ways see other frequencies; "" if they do not."""
    ends, others = _ends(subject, one), _ends(subject, other)
    return next(
        (
            _said(scaling)
            for scaling in scalings(subject.text)
            if set(map(scaling.scale, ends)) != set(map(scaling.scale, others))
        ),
        "",
    )


def of_lengths(subject: Subject, lengths: Iterable[int]) -> str:
    """Return why tokens fed one after another see other frequencies; "" if they do not."""
    lengths = list(lengths)
    found = scalings(subject.text)
    return next((_said(s) for s in found if len(set(map(s.scale, lengths))) > 1), "")


def _said(scaling: Scaling) -> str:
    return (
        f"by design: this {scaling.kind} rope has other frequencies beyond {scaling.limit} tokens, "
        "and keys that are cached are not turned again"
    )


def _ends(subject: Subject, way: Way) -> list[int]:
    """Return how many positions each forward of a way has seen at its end."""
    stops = (*way.cuts, len(way.rows[0]))
    if way.mask is None or not way.placed or not subject.decodes:
        return list(stops)
    return list(chain(max(sum(row[:stop]) for row in way.mask) for stop in stops))
