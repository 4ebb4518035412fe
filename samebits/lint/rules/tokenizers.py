"""SB867, SB868: tokenizers whose class is the user's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from samebits.lint.guards import guarded
from samebits.lint.problem import LintRule, Problem
from samebits.lint.project import Class, Project, problem
from samebits.lint.releases import since
from samebits.lint.syntax import argument_names, inside, own_attribute, stores


def _base_called_too_early(project: Project) -> Iterator[Problem]:
    """Find a base class that is called before what its call of get_vocab() needs is set."""
    for entry in project.classes:
        bases, call = project.family(entry).outside, entry.base_init()
        if call is None or not any(b.endswith(".PreTrainedTokenizer") for b in bases):
            continue
        if guarded(entry.source, call):
            continue
        needed = _set_behind(entry, call.lineno) & _read_by(entry, "get_vocab", set())
        if needed:
            yield problem(
                entry.source,
                call,
                f"this calls get_vocab(), which reads self.{min(needed)}, and that is set behind it",
                since("4.48"),
                f"set self.{min(needed)} before super().__init__()",
            )


def _set_behind(entry: Class, line: int) -> set[str]:
    """Return the attributes that ``__init__`` sets behind a line, and not before it."""
    own = [node for node in stores(entry.method("__init__")) if own_attribute(node)]
    return {node.attr for node in own} - {node.attr for node in own if node.lineno < line}


def _read_by(entry: Class, name: str, visited: set[str]) -> set[str]:
    """Return the attributes that a method of a class reads, also by its other methods."""
    method = entry.method(name)
    if method is None or name in visited:
        return set()
    visited.add(name)
    read = {
        node.attr
        for node in inside(method, ast.Attribute)
        if own_attribute(node)
        and isinstance(node.ctx, ast.Load)
        and entry.attribute(node.attr) is None
    }
    return read.union(*(_read_by(entry, other, visited) for other in sorted(read)))


def _pad_without_side(project: Project) -> Iterator[Problem]:
    """Find a _pad() that does not take the side that every call of the base class hands it."""
    for entry in project.classes:
        bases = project.family(entry).outside
        method = entry.method("_pad")
        if method is None or not any(b.endswith(".PreTrainedTokenizer") for b in bases):
            continue
        if method.args.kwarg is None and "padding_side" not in argument_names(method):
            yield problem(
                entry.source,
                method,
                "the base class passes padding_side=: TypeError",
                since("4.48"),
                "take padding_side=None, and use self.padding_side if it is None",
            )


RULES = (
    LintRule("SB867", "error", _base_called_too_early),
    LintRule("SB868", "error", _pad_without_side),
)
