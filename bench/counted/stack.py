"""probes/stack.py as it is, with the CPU seconds of every outermost call into transformers.

Loads, forwards, backward passes, runs of Trainer, generate() and saves are needed by any comparison that
asks for them. Each call appends one line, kind and
seconds, to a file below the folder of work, which every forked child shares. A forward that an
instrument watches is a kind of its own: its seconds are not those of the forward alone.

Where the folder holds a file ``without``, a watched call is first run twice in a fork without
instruments. The faster time is recorded (the first run pays for the fork's pages), beside that of the call
itself. A call that cannot run this way, such as a float64 model whose code asks for float32, is recorded as
zero. Use such a run for that share alone: every fork makes what follows slower.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "probes"))

import stack

_depth = 0


def counted(
    kind: str, function: Callable[..., Any], *, file: int, without: bool
) -> Callable[..., Any]:
    """Return ``function`` wrapped: it records its CPU seconds, unless another counted call is running."""

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        global _depth  # noqa: PLW0603  one thread: what runs inside is part of it
        if _depth:
            return function(*args, **kwargs)
        watched = kind in WATCHED and _watched()
        _depth = 1
        try:
            if watched and without:
                _without(functools.partial(function, *args, **kwargs), kind, file)
            started = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                name = f"{kind}, watched" if watched else kind
                _record(file, name, time.process_time() - started)
        finally:
            _depth = 0

    return timed


WATCHED = frozenset({"forward", "generate()"})


def _record(file: int, kind: str, seconds: float) -> None:
    os.write(file, f"{kind}\t{seconds:.6f}\n".encode())


def _watched() -> bool:
    import torch  # noqa: PLC0415  as below

    modes = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    return bool(modes or sys.getprofile() or sys.gettrace())


def _without(call: Callable[[], Any], kind: str, file: int) -> None:
    """Record what ``call`` takes without instruments."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        _stop_watching()
        _record(file, f"{kind}, not watched", min(_timed(call), _timed(call)))
    finally:
        os._exit(0)


def _stop_watching() -> None:
    import torch  # noqa: PLC0415  as below
    from torch.overrides import _pop_mode  # noqa: PLC0415
    from torch.utils._python_dispatch import _pop_mode as _pop_dispatch  # noqa: PLC0415

    sys.setprofile(None)
    sys.settrace(None)
    while torch._C._len_torch_dispatch_stack():
        _pop_dispatch()
    while torch._C._len_torch_function_stack():
        _pop_mode()
    # a traceback printed here is not of the cell
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _timed(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def count() -> None:
    """Time transformers' entry points and record what they take."""
    import transformers  # noqa: PLC0415  the process decides when it imports it

    folder = Path(os.environ["HF_MODULES_CACHE"]).parents[1] / "counted"
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / f"{os.getpid()}.tsv", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    wrapped = functools.partial(counted, file=file, without=(folder / "without").exists())
    model = transformers.PreTrainedModel
    for kind, name in {"forward": "__call__", "save": "save_pretrained"}.items():
        setattr(model, name, wrapped(kind, getattr(model, name)))
    for owner, name in (
        (model, "from_pretrained"),
        (model, "_from_config"),
        (transformers.AutoConfig, "from_pretrained"),
        (transformers.AutoTokenizer, "from_pretrained"),
    ):
        of_class = vars(owner)[name].__func__
        setattr(owner, name, classmethod(wrapped("load", of_class)))
    mixin = transformers.GenerationMixin
    mixin.generate = wrapped("generate()", mixin.generate)
    _count_training(wrapped)


def _count_training(wrapped: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
    """Time backward passes, and runs of Trainer in the precision of the cell.

    Trainer in float64 runs under an instrument, and cannot run without.
    """
    import torch.autograd  # noqa: PLC0415  as above
    from samebits_probe.questions.trainer import trainer  # noqa: PLC0415

    backward = wrapped("backward", torch.autograd.graph._engine_run_backward)
    torch.autograd.graph._engine_run_backward = backward
    vars(torch.autograd)["_engine_run_backward"] = backward
    run = trainer._run
    needed = wrapped("Trainer", run)

    def either(learner: Any, *args: Any) -> Any:
        return (needed if learner.promoted is None else run)(learner, *args)

    vars(trainer)["_run"] = either


_import_everything = stack._import_everything


def _import_and_count() -> dict[str, Any]:
    facts = _import_everything()
    count()
    return facts


stack._import_everything = _import_and_count

if __name__ == "__main__":
    stack.main()
