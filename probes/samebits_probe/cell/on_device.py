"""What exists only on a GPU: forwards of one prompt with kernels that a cell does not choose itself.

Each probe of ``PROBES`` runs the first prompt without padding twice, in one way, and compares its logits with
those of the cell's own way. Where something is missing (a package, a precision, a capability of the chip), the
probe is skipped with that reason. The result has the form of DeviceProbe in samebits/records/device.py.

Nothing here names a device except through :class:`Subject`, so that all of it also runs on the CPU in tests.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import torch

from samebits_probe.model import load, outputs
from samebits_probe.model.distance import distance
from samebits_probe.model.tensor import Keeper, tensor_hash
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line

_HALVES = ("float16", "bfloat16")
_FLASH_CAPABILITY = (8, 0)
"""Ampere; flash-attn refuses older chips (its README, "NVIDIA CUDA Support")."""
_HOPPER = (9, 0)


class Subject(NamedTuple):
    """One loaded model on a device, one prompt, and what the device can do."""

    loaded: load.Loaded
    source: load.Source
    prompt: str
    kwargs: dict[str, Any]
    capability: tuple[int, int] | None
    """Compute capability of a chip of NVIDIA; None for any other device."""
    no_room: str = ""
    """Why the model is not loaded once more; '' if it may be."""


class DeviceProbe(NamedTuple):
    """One kernel, or one precision, that a model on a GPU can be run with."""

    name: str
    lacks: Callable[[Subject], str]
    """Returns why it is skipped; '' if it can be tried."""
    way: Callable[[Subject], AbstractContextManager[Any]]
    """Yields the model; inside, its forward runs in this way."""


def observe(subject: Subject, keeper: Keeper) -> list[dict[str, Any]]:
    """Return the result of every probe, in the order of ``PROBES``."""
    own = _forward(subject.loaded.model, subject)
    return [_tried(probe, subject, own, keeper) for probe in PROBES]


def _tried(
    probe: DeviceProbe, subject: Subject, own: torch.Tensor | None, keeper: Keeper
) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": probe.name, "prompt": subject.prompt}
    if reason := probe.lacks(subject):
        return facts | {"skipped": reason}
    try:
        with probe.way(subject) as model:
            first, second = _forward(model, subject), _forward(model, subject)
    except Exception as error:  # noqa: BLE001  refusing is a fact of the kernel
        return facts | {"skipped": in_one_line(error)}
    if first is None or second is None or own is None:
        return facts | {"skipped": "forward returns no logits"}
    facts["repeats"] = tensor_hash(first) == tensor_hash(second)
    facts["logits"] = keeper.ref(first)
    facts["distance"] = distance(own, first) if own.shape == first.shape else None
    return facts


def _forward(model: Any, subject: Subject) -> torch.Tensor | None:
    with progress.forward(subject.kwargs, "device", plain=True):
        return outputs.logits_of(model(**subject.kwargs))


def _attention(name: str, package: str, capability: tuple[int, int]) -> DeviceProbe:
    def lacks(subject: Subject) -> str:
        return (
            _no_package(package)
            or _no_chip(subject, capability)
            or _not_in(subject, _HALVES)
            or subject.no_room
        )

    return DeviceProbe(name, lacks, _loaded_with({"attn_implementation": name}))


def _no_package(package: str) -> str:
    return "" if importlib.util.find_spec(package) else f"the environment has no package {package}"


def _no_chip(subject: Subject, capability: tuple[int, int]) -> str:
    if subject.capability is None:
        return f"{subject.source.device} is no GPU of NVIDIA"
    needs, has = (".".join(map(str, pair)) for pair in (capability, subject.capability))
    return (
        ""
        if subject.capability >= capability
        else f"it needs compute capability {needs}, not {has}"
    )


def _not_in(subject: Subject, dtypes: tuple[str, ...]) -> str:
    dtype = subject.source.dtype
    return "" if dtype in dtypes else f"it computes in {' or '.join(dtypes)}, not in {dtype}"


def _loaded_with(options: dict[str, Any]) -> Callable[[Subject], AbstractContextManager[Any]]:
    """Return a way in which the model is loaded once more, with other options."""

    @contextmanager
    def way(subject: Subject) -> Iterator[Any]:
        yield load.loaded_with(subject.loaded, subject.source, options, {})

    return way


@contextmanager
def _flash_of_torch(subject: Subject) -> Iterator[Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415  one probe needs it

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        yield subject.loaded.model


def _calls_no_sdpa(subject: Subject) -> str:
    chosen = getattr(subject.loaded.model.config, "_attn_implementation", None)
    return "" if chosen == "sdpa" else f"the model's attention is {chosen}, not sdpa"


def _no_flash_of_torch(subject: Subject) -> str:
    return (
        _no_chip(subject, _FLASH_CAPABILITY) or _not_in(subject, _HALVES) or _calls_no_sdpa(subject)
    )


def _no_experts(subject: Subject) -> str:
    """Return why the experts cannot be computed as one grouped product."""
    can_set = getattr(type(subject.loaded.model), "_can_set_experts_implementation", None)
    if can_set is None:
        return "this release has no experts_implementation (5.0 and later have)"
    if not can_set():
        return "the model's class has no experts with an experts_implementation"
    return subject.no_room


def _tf32(*, on: bool) -> DeviceProbe:
    @contextmanager
    def way(subject: Subject) -> Iterator[Any]:
        with tf32(on=on):
            yield subject.loaded.model

    return DeviceProbe(f"TF32 {'on' if on else 'off'}", _no_tf32, way)


def _no_tf32(subject: Subject) -> str:
    return _no_chip(subject, _FLASH_CAPABILITY) or _not_in(subject, ("float32",))


@contextmanager
def tf32(*, on: bool) -> Iterator[None]:
    """Compute float32 products and convolutions on a GPU in TF32 inside, or in full precision."""
    is_new = hasattr(torch.backends, "fp32_precision")  # torch 2.9
    cudnn = torch.backends.cudnn
    parts = [torch.backends.cuda.matmul, *((cudnn.conv, cudnn.rnn) if is_new else (cudnn,))]
    name = "fp32_precision" if is_new else "allow_tf32"
    wanted: Any = ("tf32" if on else "ieee") if is_new else on
    before = [getattr(part, name) for part in parts]
    try:
        for part in parts:
            setattr(part, name, wanted)
        yield
    finally:
        for part, value in zip(parts, before, strict=True):
            setattr(part, name, value)


PROBES = (
    _attention("flash_attention_2", "flash_attn", _FLASH_CAPABILITY),
    _attention("flash_attention_3", "flash_attn_interface", _HOPPER),
    DeviceProbe("sdpa by its flash kernel", _no_flash_of_torch, _flash_of_torch),
    DeviceProbe(
        "experts by grouped_mm", _no_experts, _loaded_with({"experts_implementation": "grouped_mm"})
    ),
    _tf32(on=True),
    _tf32(on=False),
)
