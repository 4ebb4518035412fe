"""The fixture ``samebits`` of the pytest plugin: models and tensors against samebits.lock."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from samebits.base.digests import machine_fingerprint
from samebits.check.model import read_model
from samebits.gate.bench import Bench
from samebits.gate.command import Project, matching, read_project, verify_entries
from samebits.gate.interpreter import environment_of, stack_of
from samebits.gate.lockfile import (
    TensorKey,
    machine_key,
    read_lock,
    with_model,
    with_tensors,
    without_tensors,
    write_lock,
)
from samebits.gate.model import named_specs, recorded_spec, require_consent
from samebits.gate.recorder import Entry, record
from samebits.gate.tensors import Bytes, bytes_of, difference, remember
from samebits.matrix.spec import ModelSpec
from samebits.records.lock import (
    SHORT,
    Environment,
    LockFile,
    RecordedMachine,
    RecordedModel,
    RecordedTensor,
)
from samebits.records.verification import Kept, Verified
from samebits.terminal.gate import model_lines

UPDATE = "pytest --samebits-update"


class OtherMachineWarning(UserWarning):
    """Bits are not the recorded ones, and only other machines recorded them."""


class TestSession:
    """What all tests of one process share: the lock, and what they have used and recorded of it."""

    __test__ = False

    def __init__(self, lock: Path, cache: Path, *, updates: bool) -> None:
        self.path = lock
        self.cache = cache
        """Folder for values that a message may need: the lock has none."""
        self.updates = updates
        self.lock = read_lock(lock) if lock.exists() else LockFile()
        self.used: set[TensorKey] = set()
        """Names of the tensors that tests asked for."""
        self.entries: list[Entry] = []
        self.tensors: dict[TensorKey, RecordedTensor] = {}
        self._project: Project | None = None
        self.machine = RecordedMachine(
            fingerprint=machine_fingerprint()[:SHORT],
            platform=sys.platform,
            cpu=_cpu(),
            cpu_capability="",
            gpus=_gpus(),
        )

    def project(self) -> Project:
        """Return the environment that runs the tests."""
        if self._project is None:
            self._project = read_project(self.path, None, os.environ, own=True)
        return self._project

    def as_json(self) -> dict[str, Any]:
        """Return what a worker tells the process that writes the lock."""
        return {
            "used": sorted(self.used),
            "tensors": [[*key, tensor.model_dump()] for key, tensor in self.tensors.items()],
            "entries": [
                [entry.name, *(part.model_dump(mode="json") for part in entry[1:])]
                for entry in self.entries
            ],
        }

    def add(self, output: Mapping[str, Any]) -> None:
        """Add what a worker used and recorded."""
        self.used |= {(test, name) for test, name in output["used"]}
        for test, name, tensor in output["tensors"]:
            self.tensors[test, name] = RecordedTensor.model_validate(tensor)
        self.entries += [_entry(*parts) for parts in output["entries"]]

    def write(self, unused: Collection[TensorKey] = ()) -> bool:
        """Write the lock if it changes; return whether it did."""
        if not self.updates:
            return False
        lock = read_lock(self.path) if self.path.exists() else LockFile()
        before = lock
        for entry in self.entries:
            lock = with_model(lock, *entry)
        lock = without_tensors(with_tensors(lock, self.tensors, self.machine), unused)
        if lock == before:
            return False
        write_lock(self.path, lock)
        return True

    def unused(self, ran: Collection[str], files: Collection[str]) -> list[TensorKey]:
        """Return the tensors of the lock that nothing asks for any more.

        ``ran`` are tests that ran to their end, ``files`` the files all of whose tests ran.
        """
        keys = [(test, name) for test, named in self.lock.tensors.items() for name in named]
        return [
            (test, name)
            for test, name in keys
            if (test, name) not in self.used and (test in ran or test.partition("::")[0] in files)
        ]


def _entry(name: str, model: Any, environment: Any, machine: Any) -> Entry:  # noqa: ANN401  JSON
    return Entry(
        name,
        RecordedModel.model_validate(model),
        Environment.model_validate(environment),
        RecordedMachine.model_validate(machine),
    )


class Bits:
    """The fixture ``samebits`` of one test."""

    def __init__(self, session: TestSession, test: str) -> None:
        self._session = session
        self._test = test
        self._names: set[str] = set()

    def tensor(self, name: str, value: Any) -> None:  # noqa: ANN401  any tensor
        """Assert that a tensor has the recorded dtype, shape and bytes.

        Args:
            name: names the tensor within the test.
            value: a tensor of torch or numpy.

        Raises:
            AssertionError: it has not, or nothing is recorded.
            TypeError: it is no tensor with values.
            ValueError: the test has a tensor of that name already.

        """
        __tracebackhide__ = True
        if name in self._names:
            raise ValueError(
                f"samebits.tensor: {name!r} is the name of two tensors in {self._test}: rename one"
            )
        self._names.add(name)
        tensor = bytes_of(value)
        session, key = self._session, (self._test, name)
        session.used.add(key)
        if session.updates:
            session.tensors[key] = tensor.recorded
            remember(session.cache, tensor)
            return
        self._assert_recorded(name, tensor, session.lock.tensors.get(self._test, {}).get(name, {}))

    def _assert_recorded(
        self, name: str, tensor: Bytes, by_machine: Mapping[str, RecordedTensor]
    ) -> None:
        __tracebackhide__ = True
        session, now = self._session, tensor.recorded
        if not by_machine:
            _fail(f"{session.path.name} has no tensor {name!r} of {self._test}: {UPDATE}")
        if now in by_machine.values():
            remember(session.cache, tensor)
            return
        own = by_machine.get(machine_key(session.machine))
        recorded = own or next(iter(by_machine.values()))
        if (recorded.dtype, recorded.shape) != (now.dtype, now.shape):
            before, after = (f"{t.dtype} {list(t.shape)}" for t in (recorded, now))
            _fail(f"tensor {name!r} is {after}, and {before} is recorded")
        if own is None:
            text = (
                f"samebits: tensor {name!r} of {self._test} has different bytes than other machines "
                f"recorded, and this one recorded none, so it is undecided whether that is a change: "
                f"run {UPDATE} here with the recorded code"
            )
            warnings.warn(text, OtherMachineWarning, stacklevel=3)
            return
        amount = difference(session.cache, recorded, tensor)
        amount = amount or f"hash {now.hash}, and {recorded.hash} is recorded"
        _fail(f"tensor {name!r}, {now.dtype} {list(now.shape)}, has different bytes: {amount}")

    def check(
        self,
        model: str | os.PathLike[str],
        *,
        trust_remote_code: bool | None = None,
        rebuild: bool = True,
    ) -> None:
        """Assert that a model computes the recorded bits in the environment of this test.

        Args:
            model: a folder, relative to the folder of samebits.lock, or an id on the hub.
            trust_remote_code: whether the model's own code runs; asked for when it is recorded, and
                where samebits.lock lies in the folder of a model.
            rebuild: where bits differ, compute the recorded side again to tell rounding from
                a behaviour change.

        Raises:
            AssertionError: it computes other bits, or nothing is recorded.
            SamebitsError: there is no such model.

        """
        __tracebackhide__ = True
        session = self._session
        word = os.fspath(model)
        names = matching(_as_recorded(word, session.path), session.lock)
        if session.updates:
            require_consent(session.path, session.lock, names, is_given=bool(trust_remote_code))
            session.entries += _in_thread(_recorded(session, word, names, trust_remote_code))
            return
        if not names:
            _fail(f"{session.path.name} has no model {word!r}: {UPDATE}, or samebits record {word}")
        require_consent(
            session.path, session.lock, names, is_given=bool(trust_remote_code), installs=rebuild
        )
        file = _in_thread(
            verify_entries(
                session.project(),
                session.lock,
                names,
                os.environ,
                rebuilds=rebuild,
                say=lambda _line: None,
            )
        )
        _assert_kept(file.models)


def _assert_kept(models: Collection[Verified]) -> None:
    __tracebackhide__ = True
    faults = [model for model in models if not model.verdict.passes]
    if faults:
        _fail("\n".join(line for model in faults for line in model_lines(model)))
    for model in models:
        if model.verdict is Kept.OTHER_MACHINE:
            text = "\n".join(["samebits:", *model_lines(model)])
            warnings.warn(text, OtherMachineWarning, stacklevel=4)


def _as_recorded(word: str, lock: Path) -> str:
    """Return a folder relative to the lock's; any other word as it is."""
    path = Path(word)
    if path.is_absolute():
        return Path(os.path.relpath(path, lock.absolute().parent)).as_posix()
    return word


async def _recorded(
    session: TestSession, word: str, names: list[str], trusts_code: bool | None
) -> list[Entry]:
    """Return new entries of a model: those that the lock has, or one of the default variant."""
    project = session.project()
    folder = session.path.absolute().parent
    specs: list[ModelSpec] = [
        recorded_spec(name, session.lock.models[name], folder) for name in names
    ]
    if not specs:
        in_folder = folder / word
        model = read_model(str(in_folder) if in_folder.is_dir() else word)
        specs = named_specs(model, trusts_code=trusts_code)
    needs_hub = any(spec.hub for spec in specs)
    async with Bench(project.root, os.environ, needs_hub=needs_hub) as bench:
        stack = stack_of(project.python, environment_of(project.installed))
        side = bench.current(stack, project.installed.python)
        return await record(specs, folder, side, project.installed, bench)


def _in_thread(work: Any) -> Any:  # noqa: ANN401
    """Return the result of a coroutine, also where the test has an event loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _fail(message: str) -> None:
    __tracebackhide__ = True
    text = f"samebits: {message}"
    raise AssertionError(text)


def _gpus() -> tuple[str, ...]:
    """Return the names of NVIDIA's GPUs, as probes/samebits_probe/process/environment.py does."""
    names: list[str] = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        try:
            lines = path.read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        names += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return tuple(names)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "")
