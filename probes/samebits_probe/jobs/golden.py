"""The job that runs tests of the user's, and records what they compare and which forwards came before it.

Expects a job: test (a node id of pytest), folder (where pytest starts), calls (a folder for what forwards were
given), threads, store (root, limit), float64, seed, result. Writes ``result``, which samebits/golden/records.py reads.

``torch.testing.assert_close`` does not end a test here: the comparison is recorded, and the test goes on to the
next one. With ``float64`` each forward is computed in float64, so that its outputs show how far rounding goes.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import safetensors.torch
import torch
import transformers

from samebits_probe.model import precision
from samebits_probe.model.leftover import seed
from samebits_probe.model.tensor import Keeper, dtype_name, tensor_hash
from samebits_probe.process import files, hashing, own, progress, threads
from samebits_wire.jobs import GoldenJob

Fact = dict[str, Any]

_MAX_CALLS = 64
"""Forwards that are recorded: tests that check a class in general have hundreds."""
_MAX_COMPARED = 512
_SCALARS = (bool, int, float, str)
_PLAIN = {
    "revision",
    "torch_dtype",
    "dtype",
    "attn_implementation",
    "device_map",
    "low_cpu_mem_usage",
    "trust_remote_code",
    "token",
    "cache_dir",
    "local_files_only",
    "use_safetensors",
    "config",
}
"""Arguments of from_pretrained with which a model is that of its files, in the variant that it has."""
_OF_TORCH = tuple(str(Path(m.__file__).parent) for m in (torch, np, transformers) if m.__file__)
_TESTING = ("testing_utils.py",)


def run(job: GoldenJob) -> None:
    """Run the tests and write what they compared."""
    threads.use(int(job["threads"]))
    os.environ.setdefault("RUN_SLOW", "1")  # who names a test of transformers wants it to run
    os.chdir(job["folder"])
    # a test that does not seed its own random numbers is to notice
    seed(job["seed"])
    progress.begin("test")
    progress.tick("import")
    recorder = _Recorder(job)
    recorder.install()
    pytest = importlib.import_module("pytest")
    # options of the project may name plugins that are not here, and nothing is written beside the tests
    words = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", job["test"]]
    sys.dont_write_bytecode = True
    code = int(pytest.main(words, plugins=[recorder]))
    files.write_sealed(Path(job["result"]), recorder.record(code))


class _Recorder:
    """A plugin of pytest that records comparisons, forwards and how tests end."""

    def __init__(self, job: GoldenJob) -> None:
        self._keeper = Keeper(job["store"]["root"], job["store"]["limit"], [])
        self._calls = _Calls(Path(job["calls"]), self._keeper, in_float64=job["float64"])
        self._compared: list[Fact] = []
        self._in_float64 = job["float64"]
        self._test = ""
        self._outcomes: dict[str, tuple[str, str]] = {}

    def record(self, code: int) -> Fact:
        """Return what is known at the end; ``code`` is that of pytest."""
        return {
            "format": "samebits-golden",
            "hash_algorithm": hashing.ALGORITHM,
            "code": code,
            "transformers": transformers.__version__,
            "torch": str(torch.__version__),
            "outcomes": self._outcomes,
            "compared": self._compared,
            "called": self._calls.facts,
            "left_out": self._calls.left_out,
        }

    def install(self) -> None:
        """Record from now on."""
        self._calls.install()
        name = "torch.testing.assert_close"  # whose tolerances follow from the dtypes, see _note
        torch.testing.assert_close = self._asserting(torch.testing.assert_close, name, {})
        for holder, name, shown in (
            (torch, "allclose", "torch.allclose"),
            (torch.Tensor, "allclose", "torch.allclose"),
            (np, "allclose", "numpy.allclose"),
        ):
            setattr(holder, name, self._answering(getattr(holder, name), shown))
        name, usual = "numpy.testing.assert_allclose", {"rtol": 1e-7, "atol": 0.0}
        np.testing.assert_allclose = self._asserting(np.testing.assert_allclose, name, usual)

    def _answering(self, close: Callable[..., bool], name: str) -> Callable[..., bool]:
        """Return a comparison that answers as before, and is recorded."""

        @wraps(close)
        def allclose(first: Any, second: Any, *args: Any, **kwargs: Any) -> bool:
            if self._in_float64:  # the expected values are not, and torch compares no two dtypes
                first, second = _widened(first), _widened(second)
            holds = close(first, second, *args, **kwargs)
            named = dict(zip(("rtol", "atol"), args, strict=False)) | kwargs
            usual = {"rtol": 1e-5, "atol": 1e-8}
            self._note(name, first, second, usual | named, None if holds else AssertionError())
            return holds

        return allclose

    def _asserting(
        self, close: Callable[..., None], name: str, usual: dict[str, float]
    ) -> Callable[..., None]:
        """Return an assertion that is recorded, and raises only where it could not be."""
        signature = inspect.signature(close)

        @wraps(close)
        def asserted(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            given = signature.bind(*args, **kwargs).arguments
            actual, expected = [*given.values()][:2]
            named = usual | given
            try:
                close(*args, **kwargs)
            except AssertionError as error:
                if not self._note(name, actual, expected, named, error):
                    raise
            else:
                self._note(name, actual, expected, named, None)

        return asserted

    def _note(
        self, function: str, first: Any, second: Any, named: Fact, error: Exception | None
    ) -> bool:
        """Record a comparison of a test; return False if it is none, or has no numbers."""
        place = _place()
        pairs = [*_pairs(first, second)] if place is not None and self._test else []
        if not pairs or len(self._compared) + len(pairs) > _MAX_COMPARED:
            return False
        assert place is not None
        for left, right in pairs:
            rtol, atol = named.get("rtol"), named.get("atol")
            if rtol is None or atol is None:
                rtol, atol = torch.testing._comparison.default_tolerances(left, right)
            self._compared.append(
                {
                    "test": self._test,
                    **place,
                    "function": function,
                    "rtol": float(rtol),
                    "atol": float(atol),
                    "holds": error is None,
                    "values": [self._keeper.ref(left), self._keeper.ref(right)],
                    "calls": [self._calls.source_of(left), self._calls.source_of(right)],
                    "before": self._calls.count,
                }
            )
        return True

    def pytest_runtest_setup(self, item: Any) -> None:
        """Remember which test runs."""
        progress.tick(item.nodeid)
        self._test = item.nodeid
        self._calls.test = item.nodeid

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember how a test ended."""
        if report.when == "call" or report.outcome != "passed":
            self._outcomes[report.nodeid] = (report.outcome, _said(report))

    def pytest_collectreport(self, report: Any) -> None:
        """Remember a file that cannot be imported."""
        if report.outcome == "failed":
            self._outcomes[report.nodeid] = ("not imported", _said(report))


def _said(report: Any) -> str:
    """Return the last words of a report."""
    if isinstance(report.longrepr, tuple):  # of a test that is skipped
        return " ".join(str(report.longrepr[-1]).split())
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr or "")
    lines = [line.removeprefix("E").strip() for line in text.splitlines() if line.strip()]
    return " ".join(((lines[0] if crash is not None else lines[-1]) if lines else "").split())


def _place() -> Fact | None:
    """Return where a test compares; None if the caller is a library that computes."""
    frame: FrameType | None = sys._getframe(1)
    caller = ""
    while frame is not None:
        file = frame.f_code.co_filename
        helps = file.startswith(_OF_TORCH) and (
            Path(file).name in _TESTING or "testing" in Path(file).parts
        )
        if file != __file__ and not helps:
            caller = file
            break
        frame = frame.f_back
    if not caller or caller.startswith(_OF_TORCH):
        return None
    assert frame is not None
    info = inspect.getframeinfo(frame, context=1)
    code = (info.code_context or [""])[0].strip()
    return {"file": os.path.relpath(caller), "line": frame.f_lineno, "code": code}


def _pairs(first: Any, second: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield pairs of tensors with numbers, of lists and dicts each by each."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in first.keys() & second.keys():
            yield from _pairs(first[key], second[key])
        return
    left, right = _tensor(first), _tensor(second)
    if left is not None and right is not None:
        yield left, right
    elif isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        for a, b in zip(first, second, strict=False):
            yield from _pairs(a, b)


def _tensor(value: Any) -> torch.Tensor | None:
    if torch.is_tensor(value):
        return value.detach().cpu().clone() if _is_plain(value) else None
    try:
        numbers = np.asarray(value)
        return torch.from_numpy(numbers.copy()) if numbers.dtype.kind in "fiub" else None
    except (TypeError, ValueError):
        return None


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_meta or tensor.is_quantized)


class _Calls:
    """The forwards of a test that no other forward made, with what they were given and returned."""

    def __init__(self, folder: Path, keeper: Keeper, *, in_float64: bool) -> None:
        self.facts: list[Fact] = []
        self.left_out = 0
        self.test = ""
        self._folder, self._keeper, self._in_float64 = folder, keeper, in_float64
        self._outputs: list[tuple[int, dict[str, torch.Tensor]]] = []
        self._depth = 0
        self._loads: WeakKeyDictionary[Any, Fact] = WeakKeyDictionary()
        self._states: WeakKeyDictionary[Any, tuple[Any, str]] = WeakKeyDictionary()

    @property
    def count(self) -> int:
        """How many there were."""
        return len(self.facts) + self.left_out

    def source_of(self, values: torch.Tensor) -> tuple[int, str] | None:
        """Return the last call, and the output, in which all these numbers are; None if there is none."""
        numbers = values.double().flatten()
        if not values.is_floating_point() or not len(numbers):
            return None
        for number, outputs in reversed(self._outputs):
            for name, output in outputs.items():
                same = output if values.dtype == output.dtype else output.to(values.dtype)
                for form in (output, same):
                    if form.numel() >= len(numbers) and bool(
                        torch.isin(numbers, form.double().flatten()).all()
                    ):
                        return number, name
        return None

    def install(self) -> None:
        """Record from now on."""
        base = transformers.PreTrainedModel
        calls = self
        forward = base.__call__

        def called(model: Any, *args: Any, **kwargs: Any) -> Any:
            return calls._outermost(model, forward, args, kwargs)

        base.__call__ = called
        mixin = getattr(transformers, "GenerationMixin", base)
        generate = mixin.generate

        @wraps(generate)
        def generated(model: Any, *args: Any, **kwargs: Any) -> Any:
            return calls._generated(model, generate, args, kwargs)

        mixin.generate = generated
        loader = base.from_pretrained.__func__

        @wraps(loader)
        def from_pretrained(cls: Any, source: Any = None, *args: Any, **kwargs: Any) -> Any:
            loaded = loader(cls, source, *args, **kwargs)
            calls._loaded(loaded[0] if isinstance(loaded, tuple) else loaded, source, kwargs)
            return loaded

        base.from_pretrained = classmethod(from_pretrained)

    def _loaded(self, model: Any, source: Any, kwargs: Fact) -> None:
        if source is None or not isinstance(model, transformers.PreTrainedModel):
            return
        folder = Path(str(source))
        # Auto classes pass on more, of which what begins with an underscore is for the hub
        given = {name for name, value in kwargs.items() if value not in (None, False, {})}
        self._loads[model] = {
            "source": str(folder.absolute()) if folder.is_dir() else str(source),
            "revision": kwargs.get("revision"),
            "attention": kwargs.get("attn_implementation"),
            "state": self._state(model),
            "config": _config(model),
            "plain": all(name in _PLAIN or name.startswith("_") for name in given),
        }

    def _generated(self, model: Any, generate: Any, args: Any, kwargs: Fact) -> Any:
        def described() -> Fact:
            return self._model(model) | {"unable": "generate() computed it, in many forwards"}

        return self._watched(model, generate, args, kwargs, described)

    def _outermost(self, model: Any, forward: Any, args: Any, kwargs: Fact) -> Any:
        def described() -> Fact:
            return self._given(model, args, kwargs) | self._model(model)

        return self._watched(model, forward, args, kwargs, described)

    def _watched(
        self, model: Any, function: Any, args: Any, kwargs: Fact, described: Callable[[], Fact]
    ) -> Any:
        """Call a function of a model, and record it if nothing else that is recorded called it."""
        if self._depth:
            return function(model, *args, **kwargs)
        progress.tick(f"call {self.count + 1}")
        fact = None
        if len(self.facts) < _MAX_CALLS:
            with suppress(Exception):  # of a model that is like no other; the test goes on
                fact = described()
        self._depth += 1
        try:
            with self._precision(model) as (used, widened):
                given = {key: widened(value) for key, value in kwargs.items()}
                returned = function(used, *map(widened, args), **given)
        finally:
            self._depth -= 1
        if fact is None:
            self.left_out += 1
        else:
            self._keep(fact, returned)
        return returned

    def _precision(self, model: Any) -> Any:
        return _float64(model) if self._in_float64 else nullcontext((model, lambda value: value))

    def _keep(self, fact: Fact, returned: Any) -> None:
        outputs = dict(_tensors(returned))
        number = len(self.facts)
        hashes = {name: tensor_hash(t) for name, t in outputs.items()}
        self.facts.append(fact | {"number": number, "test": self.test, "outputs": hashes})
        tensors = {n: t.detach().cpu().clone() for n, t in outputs.items() if t.is_floating_point()}
        self._outputs = [*self._outputs, (number, tensors)][-8:]

    def _given(self, model: Any, args: Any, kwargs: Fact) -> Fact:
        """Return the arguments of a forward: tensors in a file, constants, and why others are not there."""
        try:
            bound = inspect.signature(model.forward).bind(*args, **kwargs).arguments
        except (TypeError, ValueError):
            bound = dict(kwargs)
        for value in [v for v in bound.values() if isinstance(v, dict)]:
            bound |= value  # **kwargs of forward
        named = {k: v for k, v in bound.items() if v is not None and not isinstance(v, dict)}
        tensors = {
            k: v.detach().cpu().contiguous().clone() for k, v in named.items() if torch.is_tensor(v)
        }
        constants = {k: v for k, v in named.items() if isinstance(v, _SCALARS)}
        others = sorted(named.keys() - tensors.keys() - constants.keys())
        file = self._folder / f"call-{len(self.facts)}.safetensors"
        self._folder.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(tensors, file)
        unable = f"forward was given {', '.join(others)}, which no file holds" if others else ""
        refs = {name: self._keeper.ref(t) for name, t in tensors.items()}
        return {"inputs": refs, "constants": constants, "file": str(file), "unable": unable}

    def _model(self, model: Any) -> Fact:
        """Return what a model is, and where the same one can be loaded from."""
        load, state = self._loads.get(model, {}), self._state(model)
        is_as_loaded = bool(load) and load["plain"] and load["state"] == state
        is_as_loaded = is_as_loaded and load["config"] == _config(model)
        kind = type(model)
        module = "transformers" if hasattr(transformers, kind.__name__) else kind.__module__
        first = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
        saved = "" if is_as_loaded or self._in_float64 else str(self._saved(model, state))
        return {
            "model_class": "" if own.is_own(kind.__module__) else f"{module}:{kind.__name__}",
            "source": load["source"] if is_as_loaded else saved,
            "revision": load.get("revision") if is_as_loaded else None,
            "made": not is_as_loaded,
            "state": state,
            "dtype": dtype_name(first.dtype),
            "attention": load.get("attention") or "default",
            "device": str(first.device.type),
            "training": bool(model.training),
        }

    def _saved(self, model: Any, state: str) -> Path:
        """Save a model that the test made or changed, once per state."""
        folder = self._folder / f"checkpoint-{state[:16]}"
        if not folder.exists():
            model.save_pretrained(str(folder), safe_serialization=True)
        return folder

    def _state(self, model: Any) -> str:
        """Return a digest of all weights, whatever their names and how many have the same."""
        parameters = [*model.parameters()]
        key = [(id(p), p.data_ptr(), p._version, p.dtype) for p in parameters]
        before, digest = self._states.get(model, (None, ""))
        if key != before:
            hashes = sorted({tensor_hash(p) for p in parameters})
            digest = str(hashing.hasher("".join(hashes).encode()).hexdigest())
            self._states[model] = key, digest
        return digest


def _config(model: Any) -> str:
    return json.dumps(model.config.to_dict(), sort_keys=True, default=str)


@contextmanager
def _float64(model: Any) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """Compute in float64; yield a copy of the model, and what widens the floats of its arguments."""
    native = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    twin = precision.copy_in(torch.float64, model, {})
    with precision.arithmetic_in(torch.float64, native):
        yield twin, _widened


def _widened(value: Any) -> Any:
    return value.double() if torch.is_tensor(value) and value.is_floating_point() else value


def _tensors(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the plain tensors that a forward returned, by name."""
    if torch.is_tensor(value):
        if _is_plain(value):
            yield name or "0", value.detach()
    elif isinstance(value, dict) or hasattr(value, "items"):
        for key, part in value.items():
            yield from _tensors(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from _tensors(part, f"{name}.{number}" if name else str(number))
