"""Arguments of forward that the user gives: arrays of a file, a function's result, declared ones.

They are made in one stack, and every stack gets their bytes (jobs.inputs, model.feed).
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch

from samebits_probe.model import leftover, series_shapes
from samebits_probe.model.choice import MASK, TOKENS, NotFed, Signature
from samebits_probe.model.declared import (
    INTEGERS,
    Constant,
    Masked,
    Seeded,
    check_names,
    real_rows,
    resolved,
)
from samebits_probe.model.inputs import hash_words, seeded_numbers
from samebits_probe.process import consent

Fact = dict[str, Any]

_SEED_BITS = 31
_SCALARS = (bool, int, float, str)


class Arguments(NamedTuple):
    """The arguments of one input set: tensors, and constants that are passed as they are."""

    tensors: dict[str, torch.Tensor]
    constants: Fact

    def real_rows(self) -> list[list[int]] | None:
        """Return the positions without padding, if a mask of tokens says which they are."""
        mask = self.tensors.get(MASK)
        if mask is None or mask.ndim != 2 or mask.is_floating_point():
            return None
        return real_rows(mask.tolist())


def seed_of(name: str) -> int:
    """Return the seed of an input set, which follows from its name."""
    digest = hashlib.sha256(f"inputs:{name}".encode()).digest()
    return int.from_bytes(digest[:4], "little") & ((1 << _SEED_BITS) - 1)


def make(
    name: str, declared_set: Fact, config: Any, signature: Signature, places: Mapping[str, str]
) -> Arguments:
    """Return the arguments of an input set.

    ``places`` are the positions in matrix.yaml of the set, by '', and of its declared arguments.
    """
    if declared_set.get("function"):
        arguments = _returned(declared_set["function"], config, seed_of(name))
        what = f"what {declared_set['function'].rpartition(':')[2]} returns"
    else:
        arguments = _read(Path(declared_set["file"])) if declared_set.get("file") else {}
        what = Path(declared_set["file"]).name if arguments else "the set"
        for argument, declared in (declared_set.get("arguments") or {}).items():
            with _placed(places.get(argument, ""), argument):
                arguments[argument] = _made(name, argument, resolved(declared, config))
    check_names(
        arguments.keys(), signature, places, what, series_shapes.shapes_of(config, signature)
    )
    tensors = {key: value for key, value in arguments.items() if torch.is_tensor(value)}
    if not tensors:
        raise NotFed(f"{places.get('', '')}: {what} has no tensor: give forward at least one")
    # the number of rows follows from the first
    ordered = sorted(tensors, key=lambda key: (key != TOKENS, tensors[key].ndim == 0))
    constants = {key: value for key, value in arguments.items() if key not in tensors}
    return Arguments({key: tensors[key].contiguous() for key in ordered}, constants)


@contextmanager
def _placed(place: str, argument: str) -> Iterator[None]:
    """Put position and name of an argument before a reason."""
    try:
        yield
    except NotFed as reason:
        raise NotFed(f"{place}: {argument}: {reason}") from reason


def _made(name: str, argument: str, plan: Seeded | Masked | Constant) -> Any:
    if isinstance(plan, Constant):
        return _constant(plan)
    if isinstance(plan, Masked):
        mask = torch.zeros(plan.shape, dtype=getattr(torch, plan.dtype))
        rows = [mask[i] for i in range(plan.shape[0])] if len(plan.rows) > 1 else [mask]
        for row, (start, stop) in zip(rows, plan.rows, strict=True):
            row[..., start:stop] = 1
        return mask
    dtype = getattr(torch, plan.dtype)
    if plan.dtype in INTEGERS or plan.dtype == "bool":
        low, high = int(plan.low), int(plan.high)
        count = int(np.prod(plan.shape, dtype=np.int64))
        words = hash_words(f"{name}:{argument}", 8 * count)
        numbers = torch.frombuffer(words, dtype=torch.int64)[:count] & ((1 << 62) - 1)
        return (numbers % (high - low) + low).to(dtype).reshape(plan.shape)
    numbers = seeded_numbers(name, argument, plan.shape)
    if (plan.low, plan.high) != (-1, 1):
        numbers = plan.low + (numbers.double() + 1) / 2 * (plan.high - plan.low)
    return numbers.to(dtype)


def _constant(constant: Constant) -> Any:
    value = constant.value
    if not isinstance(value, list) and constant.dtype is None:
        return value
    try:
        tensor = torch.tensor(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise NotFed(f"the list is no tensor: {error}") from error
    return tensor if constant.dtype is None else tensor.to(getattr(torch, constant.dtype))


def _read(path: Path) -> dict[str, Any]:
    """Return the arrays of a file; one without dimensions is a number."""
    try:
        if path.suffix == ".safetensors":
            tensors = safetensors.torch.load_file(path)
        else:
            with np.load(path, allow_pickle=False) as arrays:
                tensors = {key: torch.from_numpy(np.array(arrays[key])) for key in arrays.files}
    except Exception as error:
        raise NotFed(f"{path.name} cannot be read: {type(error).__name__}: {error}") from error
    return {key: value if value.ndim else value.item() for key, value in tensors.items()}


def _returned(function: str, config: Any, seed: int) -> dict[str, Any]:
    """Return the arguments of forward that a user's function returns."""
    file, _, name = function.rpartition(":")
    path = Path(file)
    leftover.seed(seed)
    try:
        consent.allow(str(path))
        code = compile(path.read_bytes(), str(path), "exec")
        names: Fact = {"__name__": path.stem, "__file__": str(path)}
        exec(code, names)  # noqa: S102  the user trusts it
        with consent.users_code():
            arguments = names[name](config, seed, torch)
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
        where = f"{path.name}:{line or (lines[-1] if lines else 1)}"
        first = str(error).strip().partition("\n")[0]
        raise NotFed(f"{where}: {name} raised {type(error).__name__}: {first}") from error
    where = f"{path.name}: {name}"
    if not isinstance(arguments, dict):
        raise NotFed(
            f"{where} returned {type(arguments).__name__}: return a dict of argument to tensor, "
            'as in {"embeddings": tensor}'
        )
    return {str(key): _plain(where, key, value) for key, value in arguments.items()}


def _plain(where: str, key: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype != object:
        value = torch.from_numpy(value.copy())
    if torch.is_tensor(value):
        if value.layout is torch.strided and value.device.type == "cpu":
            return value.detach().clone()
        raise NotFed(f"{where}: {key} is no plain tensor on the CPU: return a dense one")
    if isinstance(value, _SCALARS):
        return value
    raise NotFed(
        f"{where}: {key} is {type(value).__name__}: return a tensor, an array, a number, true or "
        "false, or a text for each argument"
    )
