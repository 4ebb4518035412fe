"""Whether a difference rounds, in the words of the reports."""

from __future__ import annotations

from typing import Literal

Judgement = Literal["rounding", "diverged", "undecided"]
"""rounding: the difference almost vanishes in float64. diverged: it is there in float64 too, so both
sides compute different functions. undecided: float64 does not tell, or there is none."""
