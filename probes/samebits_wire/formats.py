"""Versions of the files that the probes write and the host reads: it reads the current one alone."""

from typing import Final

CAPTURE: Final = 30
"""What one run of a cell observed."""

GRAFT: Final = 5
"""What a stack stores for a graft, and what a graft restores."""

INPUTS: Final = 12
"""Inputs of a model."""

LADDER: Final = 8
"""A cell on the precision ladder."""

STEP_GRAFT: Final = 1
"""Grafts in a training step."""

STEP_TRACE: Final = 1
"""Operations of one training step."""

TRACE: Final = 4
"""Operations of one forward or decode."""

TRAINER: Final = 10
"""What transformers' Trainer does."""

TRAINING: Final = 14
"""One training step."""

CHECKPOINT: Final = 4
"""A checkpoint made from a recipe."""
