"""Distinction between a forward that refuses its inputs and a forward that fails.

A refusal concerns the inputs that samebits chose: the arguments do not bind to forward's signature,
or forward's own check reports a missing input that was not passed. Any other exception of a forward
is a failure. This module does not use torch, so that tests of the host can cover the rule.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from samebits_probe.model import series_shapes
from samebits_probe.model.choice import (
    DECODER,
    NO_DATA,
    PIXELS,
    TOKENS,
    NotFed,
    lines_for,
    signature_of,
)

_ALTERNATIVE_FORMS = {
    "inputs_embeds": TOKENS,
    "input_embeds": TOKENS,
    "decoder_inputs_embeds": DECODER,
    "image_embeds": PIXELS,
}
"""Another form of an input -> the input: if one was passed, the other is not missing."""
_ENCODER_RESULTS = {"encoder_outputs", "encoder_hidden_states"}
"""Arguments that a model computes from the inputs of its encoder."""


@contextmanager
def refusals(forward: Any, inputs: Mapping[str, Any], *, whole: bool = True) -> Iterator[None]:
    """Turn a refusal of ``inputs`` inside into :class:`NotFed`.

    ``forward`` is the model's bound method. Unless ``whole``, it gets further arguments, as from
    generate().
    """
    signature = inspect.signature(forward)
    try:
        (signature.bind if whole else signature.bind_partial)(**inputs)
    except TypeError as error:
        raise NotFed(f"forward rejects its inputs: {error}") from error
    try:
        yield
    except (TypeError, ValueError) as error:
        if missing := missing_input(forward, inputs, error):
            first = str(error).strip().partition("\n")[0]
            msg = f"forward needs {missing}, which samebits did not pass: {first}"
            listed = signature_of(forward)
            parameters = [p for p in listed.parameters if p.name in missing.split(", ")]
            config = getattr(getattr(forward, "__self__", None), "config", None)
            series = series_shapes.shapes_of(config, listed)
            raise NotFed(msg, lines_for(parameters, series=series)) from error
        raise


def missing_input(forward: Any, inputs: Collection[str], error: Exception) -> str:
    """Return the input that a forward's own check reports as missing; '' if it is a failure.

    Such a check is a ``raise`` statement of a plain ValueError or TypeError. Its message names a
    parameter of forward that was not passed, and none that was. In each forward from the model's to
    the raising one this parameter exists and is None, so that no module has dropped an input.
    """
    if type(error) not in {TypeError, ValueError} or error.__traceback__ is None:
        return ""
    frames = _frames_below(forward, error.__traceback__)
    if not frames or not _is_raised_by(error.__traceback__):
        return ""
    words = set(re.findall(r"\w+", str(error)))
    named = words & inspect.signature(forward).parameters.keys()
    provided = {
        *inputs,
        *(form for form, original_form in _ALTERNATIVE_FORMS.items() if original_form in inputs),
        *(_ENCODER_RESULTS if inputs else ()),
    }
    if named & provided:
        return ""
    absent = object()
    return ", ".join(
        sorted(
            name
            for name in named - NO_DATA
            if all(frame.f_locals.get(name, absent) is None for frame in frames)
        )
    )


def _frames_below(forward: Any, traceback: TracebackType) -> list[FrameType]:
    """Return the frames of the model's forward, of its submodules' forwards, and of the raise."""
    frames = [frame for frame, _ in _frames_of(traceback)]
    code, model = getattr(_unwrapped(forward), "__code__", None), getattr(forward, "__self__", None)
    starts = (
        i
        for i, frame in enumerate(frames)
        if frame.f_code is code and frame.f_locals.get("self", model) is model
    )
    if (start := next(starts, None)) is None:
        return []
    return [*(f for f in frames[start:-1] if f.f_code.co_name == "forward"), frames[-1]]


def _frames_of(traceback: TracebackType) -> Iterator[tuple[FrameType, int]]:
    step: TracebackType | None = traceback
    while step is not None:
        yield step.tb_frame, step.tb_lasti
        step = step.tb_next


def _is_raised_by(traceback: TracebackType) -> bool:
    """Return True if a ``raise`` statement raised the exception, not a failed operation."""
    frame, last = list(_frames_of(traceback))[-1]
    return dis.opname[frame.f_code.co_code[last]] == "RAISE_VARARGS"


def _unwrapped(forward: Any) -> Any:
    return inspect.unwrap(getattr(forward, "__func__", forward))
