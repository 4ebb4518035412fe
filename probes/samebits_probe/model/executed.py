"""Which Python functions of transformers and of the model's own code does a forward execute?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from samebits_probe.model import source
from samebits_probe.process.paths import package_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

REMOTE = "transformers_modules"


class Executed:
    """Notes every function entered while it is active, by Python's own profiling hook."""

    def __init__(self) -> None:
        self._calls: dict[int, list[Any]] = {}

    def __enter__(self) -> Executed:  # noqa: PYI034  no subclass; 3.10 has no Self
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(self._before)

    def _note(self, frame: FrameType, event: str, _arg: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        # by id, because hashing a code object hashes its constants; the entry keeps it alive
        entry = self._calls.get(id(code))
        if entry is None:
            self._calls[id(code)] = [code, frame.f_globals.get("__name__") or "", 1]
        else:
            entry[2] += 1

    def functions(self) -> dict[str, dict[str, Any]]:
        """Return ``module:qualified name`` -> facts, in order of the first call."""
        facts: dict[str, dict[str, Any]] = {}
        for key, code, package, calls in self._relevant_calls():
            if key in facts:
                facts[key]["calls"] += calls
                continue
            file = package_path(code.co_filename.replace("\\", "/"))
            facts[key] = {
                "file": file.rpartition("/")[2] if package == REMOTE else file,
                "line": code.co_firstlineno,
                "own": package == REMOTE,
                "digest": source.of_code(code),
                "calls": calls,
            }
        return facts

    def names(self) -> list[str]:
        """Return ``module:qualified name`` of each, without reading its source."""
        return list(dict.fromkeys(key for key, *_ in self._relevant_calls()))

    def _relevant_calls(self) -> Iterator[tuple[str, CodeType, str, int]]:
        for code, module, calls in self._calls.values():
            package = module.partition(".")[0]
            # comprehensions, lambdas and module bodies are part of what holds them; a method that
            # a dataclass makes has no source
            if package not in {"transformers", REMOTE} or "<" in {
                code.co_name[:1],
                code.co_filename[:1],
            }:
                continue
            yield f"{own_name(module)}:{_qualified_name(code)}", code, package, calls


def own_name(module: str) -> str:
    """Return a module's name, without the folders and hashes that a release copies code into."""
    return module.rpartition(".")[2] if module.startswith(f"{REMOTE}.") else module


def _qualified_name(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))  # 3.11
