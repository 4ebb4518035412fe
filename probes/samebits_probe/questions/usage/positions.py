"""Which rows of its position embeddings a model in bfloat16 reads, beside the same model in float32."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from samebits_probe.model.inputs import has_media, in_dtype
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text

Facts = dict[str, Any]
_MAX_NAMES = 3


def calls(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield a call for a model that takes images, videos or sounds, whose positions may be fractions."""
    fed = next(filter(has_media, subject.prompts.values()), None)
    if fed is not None and _tables(subject.model):
        yield "positions in bfloat16", partial(_places, subject.model, fed)


def _places(model: Any, fed: Facts) -> str:
    """Return the tables that are read at other rows in bfloat16 than in float32."""
    try:
        narrow, wide = (_of_copy(model, fed, dtype) for dtype in (torch.bfloat16, torch.float32))
    except Exception as error:  # the forward has it, and that of a cast model
        raise NoMeaning(f"the forward of a copy raises {error_text(error)}") from error
    if not wide:
        raise NoMeaning("no table of positions is read")
    others = [name for name, rows in wide.items() if rows != narrow.get(name)]
    places = [f"{name} of {_owner(model, name)}" for name in others[:_MAX_NAMES]]
    return f"other rows of {', '.join(places)}" if others else "those of float32"


def _of_copy(model: Any, fed: Facts, dtype: torch.dtype) -> dict[str, list[Any]]:
    return _read(copy.deepcopy(model).to(dtype), in_dtype(fed, dtype))


def _owner(model: torch.nn.Module, name: str) -> str:
    return type(model.get_submodule(name.rpartition(".")[0])).__name__


def _tables(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return the embeddings that are named after positions.

    What chooses the rows of others, such as the codes of an image, may itself be a rounded number.
    """
    named = model.named_modules()
    return {n: m for n, m in named if isinstance(m, torch.nn.Embedding) and "position" in n}


def _read(model: torch.nn.Module, fed: Facts) -> dict[str, list[Any]]:
    """Return table -> the rows that one forward reads, call by call."""
    rows: dict[str, list[Any]] = {}

    def read(name: str, _module: Any, arguments: tuple[Any, ...]) -> None:
        if arguments and torch.is_tensor(arguments[0]):
            rows.setdefault(name, []).append(arguments[0].tolist())

    with ExitStack() as stack, torch.no_grad():
        for name, table in _tables(model).items():
            stack.enter_context(table.register_forward_pre_hook(partial(read, name)))
        model(**fed)
    return rows
