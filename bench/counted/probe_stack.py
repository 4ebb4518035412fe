"""probes/probe_stack.py as it is, with the CPU seconds of every outermost call into transformers.

Loads, forwards, generate() and saves are what nobody can avoid. Each call appends one line, kind and
seconds, to a file below the folder of work, which every forked child shares. A forward that an
instrument watches is a kind of its own: its seconds are not those of the forward alone.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "probes"))

import probe_stack

if TYPE_CHECKING:
    from collections.abc import Callable

_depth = 0


def told(kind: str, function: Callable[..., Any], file: int) -> Callable[..., Any]:
    """Return ``function``, which says what it took unless another counted call is running."""

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        global _depth  # noqa: PLW0603  one thread: what runs inside is part of it
        if _depth:
            return function(*args, **kwargs)
        name = f"{kind}, watched" if kind in WATCHED and _watched() else kind
        _depth, started = 1, time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            _depth = 0
            os.write(file, f"{name}\t{time.process_time() - started:.6f}\n".encode())

    return counted


WATCHED = frozenset({"forward", "generate()"})


def _watched() -> bool:
    import torch  # noqa: PLC0415  as below

    modes = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    return bool(modes or sys.getprofile() or sys.gettrace())


def count() -> None:
    """Have transformers' entry points tell what they take."""
    import transformers  # noqa: PLC0415  the process imports it when it wants to

    folder = Path(os.environ["HF_MODULES_CACHE"]).parents[1] / "counted"
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / f"{os.getpid()}.tsv", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    model = transformers.PreTrainedModel
    for kind, name in {"forward": "__call__", "save": "save_pretrained"}.items():
        setattr(model, name, told(kind, getattr(model, name), file))
    for owner, name in (
        (model, "from_pretrained"),
        (model, "_from_config"),
        (transformers.AutoConfig, "from_pretrained"),
        (transformers.AutoTokenizer, "from_pretrained"),
    ):
        of_class = vars(owner)[name].__func__
        setattr(owner, name, classmethod(told("load", of_class, file)))
    mixin = transformers.GenerationMixin
    mixin.generate = told("generate()", mixin.generate, file)


_import_everything = probe_stack._import_everything


def _import_and_count() -> dict[str, Any]:
    facts = _import_everything()
    count()
    return facts


probe_stack._import_everything = _import_and_count

if __name__ == "__main__":
    probe_stack.main(sys.argv[1:])
