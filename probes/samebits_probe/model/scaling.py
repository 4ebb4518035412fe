"""Ropes whose frequencies depend on the length: "dynamic" and "longrope" have others beyond a limit."""

from __future__ import annotations

from typing import Any, NamedTuple

from samebits_probe.model import forks


class Scaling(NamedTuple):
    """A rope that depends on the length beyond ``limit``."""

    kind: str
    limit: int

    def scale(self, length: int) -> int:
        """Return a number that is equal for lengths with the same frequencies."""
        length_used = max(length, self.limit)
        return min(length_used, self.limit + 1) if self.kind == "longrope" else length_used


def scalings(config: Any) -> list[Scaling]:
    """Return the ropes of a model that depend on the length."""
    settings = forks.rope_settings(config)
    dependent = []
    for rope in (settings, *(v for v in settings.values() if isinstance(v, dict))):
        kind, limit = _kind(rope), _limit(rope, config)
        if kind and limit:
            dependent.append(Scaling(kind, limit))
    return dependent


def _kind(settings: dict[str, Any]) -> str:
    kind = str(settings.get("rope_type") or settings.get("type") or "")
    if "dynamic" in kind:
        return "dynamic"
    return "longrope" if kind in {"longrope", "su"} else ""


def _limit(settings: dict[str, Any], config: Any) -> int | None:
    """Return the length that the frequencies are made for."""
    longest = getattr(config, "max_position_embeddings", None)
    if _kind(settings) == "dynamic":
        return longest
    name = "original_max_position_embeddings"
    return settings.get(name) or getattr(config, name, None) or longest
