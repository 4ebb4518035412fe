"""Refusal to run code that comes with a model, unless the user has said that it may run.

transformers asks for ``trust_remote_code`` at most of its doors, not at all of them: 4.52 to 4.57
run custom_generate/generate.py of a folder, 4.57 to 5.2 let a LightGlue config trust code by itself,
and 4.48 unpickles block_records.npy. An audit hook sees what is compiled, executed, imported or
unpickled, whoever does it, and cannot be removed again. It does not see a program that C code starts.

A caller may catch the refusal and go on with something else. Each refusal is therefore kept, and
:func:`kept_in_view` raises it again.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ADVICE = (
    "Code of a model runs only if you say so: read it, then add --trust-remote-code (in matrix.yaml: "
    "trust_remote_code: true)"
)

_COPIED_CODE = "transformers.dynamic_module_utils", "HF_MODULES_CACHE"
_DOWNLOADS = "huggingface_hub.constants", "HF_HUB_CACHE"
"""Module, and the name in it, of the folder to which code is copied, and of the cache of the hub."""
_KERNELS = ("models--kernels-community--", "kernels--kernels-community--")
"""Folders of the hub's cache that transformers itself chooses: they are no model's."""
_DATA = frozenset({"tokenizers"})
"""Packages whose classes hold data: 4.x copies the parts of some tokenizers by pickle."""
_COMPILER = ("torch._inductor.", "torch._functorch.")
"""Modules that read back what torch compiled: torchvision compiles its ``roi_align`` where bits must not vary."""


class CodeRefused(Exception):  # noqa: N818  nothing is wrong; the user has not said yes
    """Code that comes with the model was about to run; the message names it and what to do."""


NOT_ASKED = (ImportError, CodeRefused)
"""What says nothing of the release: a package that is missing, code that nobody trusts."""


def is_given(job: Mapping[str, Any]) -> bool:
    """Return True if the user has said that the code of the job's model may run."""
    return bool((job.get("model") or job).get("trust_remote_code"))


def guard(job: Mapping[str, Any]) -> None:
    """Refuse the code of the job's model in this process and its forks, from now on."""
    # what the interpreter imports from is the user's choice, also if it lies in the model's folder
    _GUARD.label(filter(None, [*sys.path, job.get("script")]), is_of_model=False)
    _GUARD.label(_folders(job), is_of_model=True)
    _GUARD.downloads = {form for folder in _folder(*_DOWNLOADS) for form in _forms(folder)}
    sys.addaudithook(_hook)


def allow(path: str) -> None:
    """Let a file run that the user has named, wherever it lies."""
    _GUARD.label([path], is_of_model=False)


@contextmanager
def users_code() -> Iterator[None]:
    """Let the user's own code inside read pickles."""
    before, _GUARD.in_users_code = _GUARD.in_users_code, True
    try:
        yield
    finally:
        _GUARD.in_users_code = before


@contextmanager
def kept_in_view() -> Iterator[None]:
    """Raise the first refusal inside again if something has caught it."""
    before = len(_GUARD.refusals)
    yield
    if len(_GUARD.refusals) > before:
        raise CodeRefused(_GUARD.refusals[before])


class Guard:
    """Knows which files came with the model, and refuses to run them."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.in_users_code = False
        self.downloads: set[Path] = set()
        self._labels: dict[Path, bool] = {}
        """Folder or file -> whether it came with the model; the innermost one counts."""
        self._names: dict[str, str] = {}
        """Absolute path -> its name for the user if it came with the model, else ''."""
        self._last_opened = ""

    def label(self, paths: Iterable[str], *, is_of_model: bool) -> None:
        """Note for folders and files, and what they link to, whether they came with the model."""
        self._labels |= {form: is_of_model for path in paths for form in _forms(path)}
        self._names.clear()

    def check_file(self, path: object) -> None:
        """Refuse a file that is about to run."""
        if name := self._name(path):
            self._refuse(f"{name} comes with the model, and it was not run")

    def check_opened(self, path: object) -> None:
        """Note a file that is opened; refuse compiled code, which can name any file as its source."""
        if name := self._name(path):
            self._last_opened = name
            if name.endswith(".pyc"):
                self.check_file(_source_of(str(path)))

    def check_pickle(self, module: str, name: str) -> None:
        """Refuse what a pickle is about to look up, and would then call."""
        if self.in_users_code or module.partition(".")[0] in _DATA or _is_read_by_compiler():
            return
        pickle = f"{self._last_opened}: this pickle" if self._last_opened else "A pickle"
        self._refuse(f"{pickle} names {module}.{name}, which could run code, and it was not read")

    def _refuse(self, what: str) -> None:
        self.refusals.append(f"{what}. {ADVICE}")
        raise CodeRefused(self.refusals[-1])

    def _name(self, path: object) -> str:
        """Return the name of a file that came with the model; '' for any other."""
        if type(path) is not str:
            return ""
        if (name := self._names.get(path)) is None:
            if not Path(path).is_absolute():  # <string>, or a name that a caller made up
                return ""
            name = self._names[path] = self._looked_up(path)
        return name

    def _looked_up(self, path: str) -> str:
        for form in _forms(path):
            labelled = next((f for f in (form, *form.parents) if f in self._labels), None)
            if labelled is not None:
                name = form.relative_to(labelled).as_posix()
                is_kernel = labelled in self.downloads and name.startswith(_KERNELS)
                return name if self._labels[labelled] and not is_kernel else ""
        return ""


_GUARD = Guard()
"""A global, because an audit hook is one of the process."""

_CHECKS: dict[str, Callable[[tuple[Any, ...]], None]] = {
    "compile": lambda arguments: _GUARD.check_file(arguments[1]),
    "exec": lambda arguments: _GUARD.check_file(arguments[0].co_filename),
    "import": lambda arguments: _GUARD.check_file(arguments[1]),
    "open": lambda arguments: _GUARD.check_opened(arguments[0]),
    "pickle.find_class": lambda arguments: _GUARD.check_pickle(*arguments),
    "ctypes.dlopen": lambda arguments: _GUARD.check_file(arguments[0]),
    "os.exec": lambda arguments: _GUARD.check_file(arguments[0]),
    "os.posix_spawn": lambda arguments: _GUARD.check_file(arguments[0]),
    "subprocess.Popen": lambda arguments: _GUARD.check_file(arguments[0]),
}


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if (check := _CHECKS.get(event)) is not None:
        check(arguments)


def _is_read_by_compiler() -> bool:
    """Return True if torch's compiler itself reads the pickle: it has written it, in a folder of its own."""
    frame = sys._getframe()  # what reads a pickle is written in C, and has no frame
    while frame.f_back and frame.f_globals is globals():
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).startswith(_COMPILER)


def _source_of(path: str) -> str:
    """Return the source of a compiled file in ``__pycache__``; any other is its own."""
    try:
        return importlib.util.source_from_cache(path)
    except ValueError:
        return path


def _forms(path: str) -> tuple[Path, Path]:
    """Return a path as it is written, and as its links lead."""
    absolute = os.path.normpath(Path(path).absolute())
    return Path(absolute), Path(os.path.realpath(absolute))


def _folders(job: Mapping[str, Any]) -> Iterator[str]:
    """Yield the folders whose code is a model's: its own, and those to which code is copied."""
    model, script = job.get("model") or {}, job.get("script")
    places = [model.get("source"), *job.get("copies", {}).values(), script and Path(script).parent]
    yield from (str(place) for place in places if place and Path(place).is_dir())
    yield from (*_folder(*_COPIED_CODE), *_folder(*_DOWNLOADS))


def _folder(module: str, name: str) -> list[str]:
    folder = getattr(sys.modules.get(module), name, None)
    return [str(folder)] if folder else []
