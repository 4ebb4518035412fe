"""Whether a difference rounds, judged by the same difference in float64."""

from __future__ import annotations

from samebits.records.judgement import Judgement
from samebits_wire.rounding import shrinks, stays

LEAKED = "not every operation runs in float64, so a difference that remains there proves nothing"
NOT_FINITE = "one side is not finite where the other is"
PARTLY = "float64 removes a part of it: what remains is too large for rounding"


def judged(before: float, after: float) -> Judgement:
    """Return the judgement of a difference ``before`` that is ``after`` in float64."""
    if shrinks(before, after):
        return "rounding"
    return "diverged" if stays(before, after) else "undecided"
