"""Files of the user's with probes: what is wrong with one, and which functions it has.

A file is read as text and never imported here. Its public functions are the probes. Each asks for
what it needs by the names of its parameters.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from samebits.base.errors import nearest, shown
from samebits.records.question import is_question
from samebits.records.record import Record

PARAMETERS = ("model", "tokenizer", "processor", "inputs", "config", "torch")
"""What a probe can ask for, by name. probes/samebits_probe/model/probing.py provides it."""

MAX_BYTES = 1 << 20
_NAME = r"[A-Za-z][A-Za-z0-9_]*"
_OF_SAMEBITS = frozenset(
    {"load", "config", "inputs", "weights", "buffers", "inv_freq", "attention", "hidden_states"}
    | {"logits", "decode", "greedy", "tokenizer", "outputs", "state"}
)
"""Names of what samebits itself observes, beside those of questions; a file with such a name could not
be told from it."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class ProbeFile(Record):
    """A file with probes as jobs get it."""

    name: str
    """Name of the file without .py: the name of its signal."""
    source: str
    """Its content."""
    functions: tuple[str, ...]
    """Its probes, in the order of the file."""
    verdict: bool
    """Whether a difference in it counts; else it only informs."""


def probe_file(path: Path, *, verdict: bool) -> ProbeFile:
    """Return a file with probes that has no faults (:func:`bad_probe`)."""
    source = path.read_text("utf-8")
    functions = tuple(function.name for function in _public_functions(ast.parse(source)))
    return ProbeFile(name=path.stem, source=source, functions=functions, verdict=verdict)


def bad_probe(base: Path, path: str) -> str | None:
    """Return what is wrong with a file of probes, in words, or None.

    ``base`` is the folder of matrix.yaml. Every fault inside the file has line and column.
    """
    try:
        file = base / path
        if not file.exists():
            names = [entry.name for entry in file.parent.iterdir()] if file.parent.is_dir() else []
            suggestion = nearest(file.name, [name for name in names if name.endswith(".py")])
            hint = suggestion if suggestion.startswith("did") else "write it relative to this file"
            return f"{shown(path)} does not exist: {hint}"
        if not file.is_file() or file.suffix != ".py":
            return f"{shown(path)} is no Python file: write the path of one, such as my_probe.py"
        if file.stat().st_size > MAX_BYTES:
            return f"{shown(path)} is larger than 1 MiB: put the probes into a file of their own"
        source = file.read_text("utf-8")
    except UnicodeDecodeError:
        return f"{shown(path)} is not UTF-8: save it in that encoding"
    except (OSError, ValueError, RuntimeError) as error:
        return f"{shown(path)} cannot be read: {getattr(error, 'strerror', None) or error}"
    return _bad_name(file.stem) or "; ".join(_faults(source, path)) or None


def _bad_name(name: str) -> str:
    if re.fullmatch(_NAME, name, re.ASCII) is None:
        return (
            f"{shown(name)} is the name of its signal, and has other characters than letters, "
            "digits and underscores: rename the file"
        )
    if name in _OF_SAMEBITS or is_question(name):
        return f"{shown(name)} is also a signal of samebits: rename the file, to my_{name}.py"
    return ""


def _faults(source: str, path: str) -> Iterator[str]:
    """Yield every fault with its place, such as ``my_probe.py:3:9: …``."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        line = (error.text or "").strip()
        yield (
            f"{path}:{error.lineno or 1}:{error.offset or 1}: syntax error: {error.msg}"
            f"{f' in {shown(line)}' if line else ''}: correct the line"
        )
        return
    except ValueError as error:
        yield f"{path}:1:1: it cannot be read as Python: {error}"
        return
    functions = list(_public_functions(tree))
    if not functions:
        yield (
            f"{path}:1:1: it has no probe, which is a function at the top level whose name does not "
            "begin with an underscore: write one such as def pooling(model, inputs):"
        )
    for function in functions:
        yield from (
            f"{path}:{node.lineno}:{node.col_offset + 1}: {text}"
            for node, text in _faults_of(function)
        )
    names = [function.name for function in functions]
    for number, function in enumerate(functions):
        if function.name in names[:number]:
            yield (
                f"{path}:{function.lineno}:{function.col_offset + 1}: {function.name} is defined "
                "twice, and only the second would run: rename one of them"
            )


def _public_functions(tree: ast.Module) -> Iterator[_Function]:
    for node in tree.body:
        if isinstance(node, _Function) and not node.name.startswith("_"):
            yield node


def _faults_of(function: _Function) -> Iterator[tuple[_Function | ast.arg | ast.expr, str]]:
    """Yield each fault of a probe, with the node where it is."""
    name, arguments = function.name, function.args
    if isinstance(function, ast.AsyncFunctionDef):
        yield function, f"{name} is async, which nothing awaits: write def {name}(…):"
    for argument in filter(None, (arguments.vararg, arguments.kwarg)):
        yield argument, f"{name} takes *{argument.arg}: name what it needs, {_example(function)}"
    for argument in arguments.posonlyargs:
        yield argument, f"{name} takes {argument.arg} by position only: remove the / behind it"
    for argument in _required(arguments):
        if argument.arg not in PARAMETERS:
            yield argument, _unknown(function, argument.arg)
    nodes = list(_own_nodes(function))
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes):
        yield function, f"{name} yields: return a dict of its results instead"
    elif not any(_may_answer(node) for node in nodes):
        text = 'returns nothing: end it with a line such as return {"mean": mean}'
        yield function, f"{name} {text}"


def _may_answer(node: ast.AST) -> bool:
    """Return True if a node of a probe returns a value, or raises in place of that."""
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Return) and node.value is not None)


def _unknown(function: _Function, name: str) -> str:
    text = f"{function.name} asks for {shown(name)}, which no probe gets: "
    return f"{text}{nearest(name, PARAMETERS)} Write {_repaired(function)}"


def _required(arguments: ast.arguments) -> Iterator[ast.arg]:
    """Yield the parameters without a default; those with one are the user's own."""
    yield from arguments.args[: len(arguments.args) - len(arguments.defaults)]
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is None:
            yield argument


def _repaired(function: _Function) -> str:
    """Return the line of a probe's definition with the names that it may ask for."""
    names: list[str] = []
    for argument in _required(function.args):
        suggestion = nearest(argument.arg, PARAMETERS)
        if argument.arg in PARAMETERS:
            names.append(argument.arg)
        elif suggestion.startswith("did"):
            names += [name for name in PARAMETERS if name in suggestion.split('"')]
    return f"def {function.name}({', '.join(dict.fromkeys(names)) or 'model, inputs'}):"


def _example(function: _Function) -> str:
    return f"as in def {function.name}(model, inputs):"


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body without those of functions and classes inside it."""
    open_nodes: list[ast.AST] = list(function.body)
    while open_nodes:
        node = open_nodes.pop()
        yield node
        if not isinstance(node, _Function | ast.Lambda | ast.ClassDef):
            open_nodes += ast.iter_child_nodes(node)
