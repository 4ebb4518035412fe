"""Where an exception was raised, in the model's code and in the library, and the missing names."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from samebits.records.capture import Failure, Frame
from samebits.records.code import Symbol
from samebits.text.blocks import bullets, codes, page, titled
from samebits.text.markdown import EMPTY, Markdown, code, fill, join

_PYTHON_OWNERS = {*dir(builtins), "NoneType"}
"""Owners whose names no release changes: a list without ``keys`` hints at no other place."""


def failure_places(failure: Failure) -> Markdown:
    """Return the deepest frames of model and transformers, and the names that are missing."""
    places = list(_places(failure))
    symbols = [_symbol(symbol) for symbol in failure.symbols if symbol.owner not in _PYTHON_OWNERS]
    return page(
        [
            bullets(places) if places else EMPTY,
            page([titled("Missing names, looked up in this environment"), bullets(symbols)])
            if symbols
            else EMPTY,
        ]
    )


def _places(failure: Failure) -> Iterator[Markdown]:
    model_frame = next((f for f in reversed(failure.frames) if f.own), None)
    if model_frame is not None:
        yield fill("deepest in the model's own code: {}", _place(model_frame))
    library_frame = next((f for f in reversed(failure.frames) if _is_library(f)), None)
    if library_frame is not None:
        yield fill("deepest in transformers: {}", _place(library_frame))


def _is_library(frame: Frame) -> bool:
    return frame.file.startswith("transformers/") and not frame.own


def _place(frame: Frame) -> Markdown:
    name = frame.file.rpartition("/")[2] if frame.own else frame.file
    place = fill("{} in {}", code(f"{name}:{frame.line}"), code(frame.function))
    return fill("{}: {}", place, code(frame.code)) if frame.code else place


def _symbol(symbol: Symbol) -> Markdown:
    missing = fill("{} has no {}", code(symbol.owner), code(symbol.name))
    hints = [fill("now in {}", codes(symbol.elsewhere, 6))] if symbol.elsewhere else []
    if symbol.similar:
        hints.append(fill("it has {}", codes(symbol.similar, 8)))
    if not hints:
        hints = [fill("no module of this release defines that name")]
    return fill("{}: {}", missing, join(hints, "; "))
