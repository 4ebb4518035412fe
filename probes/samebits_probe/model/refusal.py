"""Does a forward refuse what it was fed, or did it fail?

A refusal is about the inputs that samebits chose: the arguments do not bind to forward's signature, or
forward's own check of its inputs says that one is missing which was never given. Everything else that a
forward raises is a failure. Nothing here knows torch, so that tests of the host state the rule.
"""

from __future__ import annotations

import dis
import inspect
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from samebits_probe.model.choice import DECODER, NO_DATA, PIXELS, TOKENS, NotFed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from types import FrameType, TracebackType

_ALTERNATIVE_FORMS = {
    "inputs_embeds": TOKENS,
    "input_embeds": TOKENS,
    "decoder_inputs_embeds": DECODER,
    "image_embeds": PIXELS,
}
"""Another form of an input -> the input: who was given one was not refused the other."""
_ENCODER_RESULTS = {"encoder_outputs", "encoder_hidden_states"}
"""What a model computes from whatever its encoder was fed."""


@contextmanager
def refusals(forward: Any, fed: Mapping[str, Any], *, whole: bool = True) -> Iterator[None]:
    """Turn a refusal of ``fed`` inside into :class:`NotFed`; ``forward`` is a model's own.

    Unless ``whole``, forward gets more than ``fed``, as generate() gives it.

    Raises:
        NotFed: the arguments do not bind, or forward's own check says that one is missing.

    """
    signature = inspect.signature(forward)
    try:
        (signature.bind if whole else signature.bind_partial)(**fed)
    except TypeError as error:
        msg = f"forward refuses what it was fed: {error}"
        raise NotFed(msg) from error
    try:
        yield
    except (TypeError, ValueError) as error:
        if missing := missing_input(forward, fed, error):
            first = str(error).strip().partition("\n")[0]
            msg = f"forward asks for {missing}, which it was not fed: {first}"
            raise NotFed(msg) from error
        raise


def missing_input(forward: Any, fed: Collection[str], error: Exception) -> str:
    """Return the input that a forward's own check says is missing; '' if the exception is a failure.

    Such a check is a ``raise`` statement of a plain ValueError or TypeError. Its message names a
    parameter of forward that was not given, and none that was. Each forward on the way from the
    model's own has that parameter, and holds None in it, so that nothing was lost on the way.
    """
    if type(error) not in {TypeError, ValueError} or error.__traceback__ is None:
        return ""
    frames = _frames_below(forward, error.__traceback__)
    if not frames or not _is_raised_by(error.__traceback__):
        return ""
    words = set(re.findall(r"\w+", str(error)))
    named = words & inspect.signature(forward).parameters.keys()
    provided = {
        *fed,
        *(n for n, of in _ALTERNATIVE_FORMS.items() if of in fed),
        *(_ENCODER_RESULTS if fed else ()),
    }
    if named & provided:
        return ""
    missing = sorted(
        name for name in named - NO_DATA if all(_holds_none(frame, name) for frame in frames)
    )
    return ", ".join(missing)


def _frames_below(forward: Any, traceback: TracebackType) -> list[FrameType]:
    """Return the model's own forward, those of its parts on the way, and the frame that raised."""
    frames = [frame for frame, _ in _frames_of(traceback)]
    code, model = getattr(_unwrapped(forward), "__code__", None), getattr(forward, "__self__", None)
    starts = (
        i
        for i, frame in enumerate(frames)
        if frame.f_code is code and frame.f_locals.get("self", model) is model
    )
    start = next(starts, None)
    if start is None:
        return []
    inner = frames[start:-1]
    return [*(f for f in inner if f.f_code.co_name == "forward"), frames[-1]]


def _frames_of(traceback: TracebackType) -> Iterator[tuple[FrameType, int]]:
    step: TracebackType | None = traceback
    while step is not None:
        yield step.tb_frame, step.tb_lasti
        step = step.tb_next


def _is_raised_by(traceback: TracebackType) -> bool:
    """Return True if a ``raise`` statement raised, and not a call that went wrong."""
    frame, last = list(_frames_of(traceback))[-1]
    return dis.opname[frame.f_code.co_code[last]] == "RAISE_VARARGS"


def _holds_none(frame: FrameType, name: str) -> bool:
    """Return True if a frame has ``name`` and holds None in it."""
    return name in frame.f_locals and frame.f_locals[name] is None


def _unwrapped(forward: Any) -> Any:
    return inspect.unwrap(getattr(forward, "__func__", forward))
