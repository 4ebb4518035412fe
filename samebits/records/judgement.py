"""Whether a difference rounds, in the words of the reports."""

from __future__ import annotations

from typing import Literal

Judgement = Literal["rounding", "diverged", "undecided"]
"""rounding: the difference almost vanishes in float64. diverged: it is there in float64 too, so both
sides compute different functions. undecided: float64 does not tell, or there is none."""
TrainingOutcome = Literal["identical", Judgement, "not compared"]
TrainingStanding = Literal["identical", Judgement, "follows", "failed", "not compared"]
"""Of a step, or of what Trainer does. follows: what it is computed from differs already: of a step
the forward, of Trainer the step. failed: the model is trained in the reference and raises here."""
