"""A made video in the place of a file that a pipeline opens: no package decodes it, and an environment needs none."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from samebits_probe.questions.processors import files, samples

PATH = "made.video"
COUNT = 4
"""Frames to take, for a model whose config has no number of its own."""
_FRAMES = 64
_MODULE = "transformers.pipelines.video_classification"


class _Frame:
    """One frame, made when it is asked for."""

    def __init__(self, number: int) -> None:
        self._number = number

    def to_ndarray(self, **_format: Any) -> np.ndarray:
        """Return its pixels, channels last."""
        return samples.picture(48, 64, seed=self._number)


def _open(_path: Any) -> Any:
    """Return what ``av.open`` does, of a made video."""
    return SimpleNamespace(
        seek=lambda _place: None, decode=lambda **_stream: map(_Frame, range(_FRAMES))
    )


@contextmanager
def read() -> Iterator[None]:
    """Let the pipeline of videos read a made one, by itself or by a video processor."""
    pipelines = importlib.import_module(_MODULE)
    stand_ins = {"av": SimpleNamespace(open=_open), "np": np, "requires_backends": lambda *_: None}
    with ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(mock.patch.object(pipelines, name, stand_in, create=True))
        if (reading := files.videos([])) is not None:
            stack.enter_context(reading)
        yield
