"""Probes of the user's: functions of a file that get the model and return tensors and facts.

samebits/matrix/probefile.py reads the file on the host and lists its functions. Here each of them
runs, and its result is taken apart into tensors and facts by name.
"""

from __future__ import annotations

import inspect
import linecache
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from samebits_probe.model.load import Loaded, Source, load_processor
from samebits_probe.model.precision import real_dtypes
from samebits_probe.model.tensor import Keeper, NotHashable, require_plain
from samebits_probe.process import consent, progress
from samebits_probe.process.failure import describe
from samebits_wire.jobs import ProbeFile

MAX_TENSORS = 1000
"""Tensors and facts of one result."""
MAX_BYTES = 256 << 20
"""Bytes of the tensors of one result."""
MAX_TEXT = 1 << 20
"""Characters of the texts of one result, its names included."""
MAX_DEPTH = 8
"""Dicts and lists inside each other in one result."""


_FORWARDS = 20
"""Forwards over the longest prompt that one probe is given time for, beyond the limit of a step."""


class BadResult(Exception):  # noqa: N818  it is the probe that is wrong
    """A probe returned what cannot be compared; the message says what to return instead."""


class Parts(NamedTuple):
    """A result, taken apart: name -> tensor or fact."""

    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]


class ProbeArguments(NamedTuple):
    """What probes can ask for."""

    loaded: Loaded
    source: Source
    model: Any
    """The model, or a copy of it in another dtype."""
    inputs: Callable[[], dict[str, dict[str, torch.Tensor]]]
    """Returns prompt -> arguments of forward."""

    def argument(self, name: str) -> Any:
        """Return what a parameter of this name gets."""
        if name == "inputs":
            return self.inputs()
        if name == "processor":
            return load_processor(self.source)
        by_name = {
            "model": self.model,
            "config": self.model.config,
            "tokenizer": self.loaded.tokenizer,
            "torch": torch,
        }
        return by_name[name]


_NAMES = ("model", "tokenizer", "processor", "inputs", "config", "torch")


def results(file: ProbeFile, function: str, arguments: ProbeArguments) -> Parts:
    """Run one probe of a file and return its result, taken apart.

    Whatever the file or the probe raises is raised.
    """
    probe = _namespace(file)[function]
    names = [name for name in inspect.signature(probe).parameters if name in _NAMES]
    with torch.no_grad(), consent.users_code():
        result = probe(**{name: arguments.argument(name) for name in names})
    if result is None:
        raise BadResult(
            f"{function} returned nothing (None): return tensors, numbers, texts, or a dict of them"
        )
    with real_dtypes():
        return taken_apart(function, result)


def _namespace(file: ProbeFile) -> dict[str, Any]:
    """Run a file as a module of its own, with its lines known to tracebacks."""
    path, source = f"{file['name']}.py", file["source"]
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    namespace: dict[str, Any] = {"__name__": file["name"], "__file__": path}
    exec(compile(source, path, "exec"), namespace)  # noqa: S102  the user names the file
    return namespace


def taken_apart(name: str, result: Any) -> Parts:
    """Return the tensors and facts of a result by name, such as ``pooling.short[0]``.

    A number with a fraction becomes a float64 tensor without dimensions: its bytes count, NaN and
    the sign of zero included.
    """
    parts = Parts({}, {})
    n_bytes = n_text = 0
    for path, leaf in _leaves(name, result, 0):
        if path in parts.tensors or path in parts.facts:
            raise BadResult(f"two parts of the result have the name {path}: rename one of them")
        if isinstance(leaf, torch.Tensor):
            parts.tensors[path] = leaf
            n_bytes += leaf.numel() * leaf.element_size()
        else:
            parts.facts[path] = leaf
            n_text += len(str(leaf))
        n_text += len(path)
        if len(parts.tensors) + len(parts.facts) > MAX_TENSORS:
            raise BadResult(
                f"{name} returned more than {MAX_TENSORS:,} tensors and facts: join them, as in torch.stack"
            )
        if n_bytes > MAX_BYTES:
            raise BadResult(
                f"the tensors that {name} returned have more than {MAX_BYTES >> 20} MiB at {path}: "
                "return a part of them, or a mean"
            )
        if n_text > MAX_TEXT:
            raise BadResult(
                f"the texts that {name} returned are longer than {MAX_TEXT:,} characters: shorten them"
            )
    return parts


def _leaves(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the name of every part of a result, and a tensor or a JSON value."""
    if isinstance(value, Mapping) and value:
        _require_shallow(path, depth)
        for key, item in value.items():
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise BadResult(f"{path} has a key of type {type(key).__name__}: use texts as keys")
            step = f".{key}" if isinstance(key, str) else f"[{key}]"
            yield from _leaves(f"{path}{step}", item, depth + 1)
    elif isinstance(value, (list, tuple)) and value:
        _require_shallow(path, depth)
        for number, item in enumerate(value):
            yield from _leaves(f"{path}[{number}]", item, depth + 1)
    else:
        yield path, _leaf(path, value)


def _require_shallow(path: str, depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise BadResult(
            f"{path[:200]} lies in more than {MAX_DEPTH} dicts and lists: return a flatter dict"
        )


def _leaf(path: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        value = _of_array(path, value)
    if isinstance(value, torch.Tensor):
        try:
            require_plain(value)
        except NotHashable as reason:
            raise BadResult(f"{path} is a tensor that is {reason}: return a plain one") from None
        return value.detach()
    if isinstance(value, float):
        data = bytearray(struct.pack("=d", value))
        return torch.frombuffer(data, dtype=torch.float64).reshape(())
    if isinstance(value, complex):
        return torch.tensor(value, dtype=torch.complex128)
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    if isinstance(value, str):
        return _text(path, str.__str__(value))
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, Mapping):
        return {}
    if isinstance(value, (list, tuple)):
        return []
    raise BadResult(
        f"{path} is of type {type(value).__name__}, which cannot be compared: return a tensor, a "
        "number, a text, or a dict or list of them"
    )


def _of_array(path: str, array: np.ndarray[Any, Any]) -> torch.Tensor:
    try:
        return torch.from_numpy(np.array(array, order="C", copy=True))
    except TypeError:
        raise BadResult(
            f"{path} is an array of {array.dtype}, which torch has not: return numbers"
        ) from None


def _text(path: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadResult(f"{path} is a text that is no valid Unicode: return its repr()") from None
    return value


def answer(
    file: ProbeFile, function: str, arguments: ProbeArguments, keeper: Keeper
) -> dict[str, Any]:
    """Return what a probe returned, or its exception, as an entry of a capture."""
    try:
        parts = results(file, function, arguments)
        refs = {path: keeper.ref(tensor) for path, tensor in parts.tensors.items()}
    except Exception as error:  # noqa: BLE001  an exception of the user's code is a fact of the cell
        return {"failure": failure_of(file, function, error)}
    return {"tensors": refs, "facts": parts.facts}


def failure_of(file: ProbeFile, function: str, error: BaseException) -> dict[str, Any]:
    """Return an exception of a probe; that of a bad result has the line of the function."""
    failure = describe(phase_of(file, function), error)
    if not isinstance(error, BadResult):
        return failure
    frame = {
        "file": f"{file['name']}.py",
        "line": _line_of(file, function),
        "function": function,
        "code": "",
        "own": True,
    }
    return failure | {"type": "BadResult", "frames": [frame], "traceback": ""}


def phase_of(file: ProbeFile, function: str) -> str:
    """Return the phase of one probe: ``probe my_probe.pooling``."""
    return f"probe {file['name']}.{function}"


def begin(file: ProbeFile, function: str, arguments: ProbeArguments, times: float = 1.0) -> None:
    """Begin the step of one probe; ``times`` is the cost of a forward relative to a plain one."""
    longest = max(map(progress.positions, arguments.inputs().values()), default=1)
    allowance = progress.FACTOR * times * _FORWARDS * progress.expected(longest)
    progress.tick(f"{file['name']}.{function}", allowance=allowance)


def _line_of(file: ProbeFile, function: str) -> int:
    lines = file["source"].splitlines()
    starts = (n for n, line in enumerate(lines, 1) if line.startswith(f"def {function}"))
    return next(starts, 1)
