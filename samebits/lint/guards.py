"""Guards: code that asks which release it runs in, or tries a name before it uses it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

from samebits.lint.source import Source
from samebits.lint.syntax import Function, assigned, inside, is_constant, is_name, receiver

_QUESTIONS = {"hasattr", "signature", "getfullargspec", "find_spec", "import_module", "callable"}
_WORDS = re.compile(
    r"version|TYPE_CHECKING|_available\b|is_torchdynamo|is_legacy|transformers_(?:ge|gt|le|lt|v?\d)",
    re.IGNORECASE,
)
_IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError"}
_USE_ERRORS = {"AttributeError", "TypeError", "KeyError", "RuntimeError", "ValueError"}
_ANY = {"Exception", "BaseException"}
_Assignment = ast.Assign | ast.AnnAssign
_T = TypeVar("_T")
_Use = tuple[bool, frozenset[_T]]
"""One use of a file or a function: whether it is below a question about the release, and what it stands in."""
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def guarded_import(source: Source, node: ast.AST) -> bool:
    """Return True if a failure of this import is expected, or it does not always run."""
    return guarded(source, node, _IMPORT_ERRORS)


def guarded(source: Source, node: ast.AST, errors: set[str] = _USE_ERRORS) -> bool:
    """Return True if the code around a node asks for the release, or catches one of the errors."""
    inner = node
    for outer in source.ancestors(node):
        if isinstance(outer, (ast.If, ast.IfExp, ast.While)) and inner is not outer.test:
            if _asks(source, outer.test):
                return True
        elif (isinstance(outer, (ast.BoolOp, ast.Assert)) and _asks(source, outer)) or (
            isinstance(outer, ast.Try) and _catches(outer, inner, errors)
        ):
            return True
        if isinstance(inner, ast.stmt) and _left_before(source, outer, inner):
            return True
        inner = outer
    return False


def behind_guards(sources: Mapping[Path, Source]) -> set[Path]:
    """Return the files that are imported only below a question about the release, or by such files."""
    by_end: dict[tuple[str, ...], list[Path]] = {}
    for path in sources:
        parts = path.absolute().with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        for start in range(max(len(parts) - _MAX_DEPTH, 0), len(parts)):
            by_end.setdefault(parts[start:], []).append(path)
    uses: dict[Path, list[_Use[Path]]] = {}
    for path, source in sources.items():
        for node in (*source.by_kind.get(ast.ImportFrom, ()), *source.by_kind.get(ast.Import, ())):
            use = _asks_release(source, node), frozenset({path})
            for module in _modules(path, node):
                targets = by_end.get(module, [])
                if len(targets) == 1 and targets[0] != path:
                    uses.setdefault(targets[0], []).append(use)
    return _only_below(uses)


def _only_below(uses: Mapping[_T, Iterable[_Use[_T]]]) -> set[_T]:
    """Return what is used only below a question about the release, or inside of what is itself used so."""
    below: set[_T] = set()
    while True:
        more = {
            used
            for used, places in uses.items()
            if used not in below
            and all(asks or not below.isdisjoint(owners) for asks, owners in places)
        }
        if not more:
            return below
        below |= more


def share_flags(sources: Mapping[Path, Source]) -> None:
    """Let each file know the flags that it imports from another one, which asked for the release."""
    by_name: dict[str, list[Path]] = {}
    for path in sources:
        name = path.parent.name if path.stem == "__init__" else path.stem
        by_name.setdefault(name, []).append(path)
    own = {path: _release_flags(source) for path, source in sources.items()}
    for source in sources.values():
        source.imported_flags = frozenset(
            alias.name
            for node in source.by_kind.get(ast.ImportFrom, ())
            for path in by_name.get((node.module or "").rpartition(".")[2], ())
            for alias in node.names
            if alias.name in own[path] and alias.asname is None
        )


def lines_behind_guards(sources: Mapping[Path, Source]) -> dict[Path, list[range]]:
    """Return the lines of functions that the code calls only below a question about the release.

    Functions of modules alone: transformers calls methods, too.
    """
    by_name: dict[str, list[tuple[Path, Function]]] = {}
    for path, source in sources.items():
        for function in source.by_kind.get(ast.FunctionDef, ()):
            if source.parents[function] is source.tree:
                by_name.setdefault(function.name, []).append((path, function))
    places = {name: each[0] for name, each in by_name.items() if len(each) == 1}
    uses: dict[ast.AST, list[_Use[ast.AST]]] = {}
    for source in sources.values():
        for node in (*source.by_kind.get(ast.Name, ()), *source.by_kind.get(ast.Attribute, ())):
            if (name := receiver(node)) in places:
                use = _asks_release(source, node), frozenset(source.ancestors(node))
                uses.setdefault(places[name][1], []).append(use)
    below = _only_below(uses)
    lines: dict[Path, list[range]] = {}
    for path, function in places.values():
        if function in below:
            last = function.end_lineno or function.lineno
            lines.setdefault(path, []).append(range(function.lineno, last + 1))
    return lines


_MAX_DEPTH = 12
_RELEASE = re.compile(r"version|transformers_(?:ge|gt|le|lt|v?\d)", re.IGNORECASE)


def _asks_release(source: Source, node: ast.AST) -> bool:
    """Return True below an ``if`` whose condition names a version, or a flag that was made of one."""
    flags = _release_flags(source) | source.imported_flags
    inner = node
    for outer in source.ancestors(node):
        if isinstance(outer, ast.If) and inner is not outer.test:
            nodes = (n for n in ast.walk(outer.test) if isinstance(n, (ast.Name, ast.Attribute)))
            names = set(map(receiver, nodes))
            if names & flags or any(map(_RELEASE.search, names)):
                return True
        inner = outer
    return False


def _modules(path: Path, node: ast.AST) -> Iterator[tuple[str, ...]]:
    """Yield the modules that an import may name, as parts of paths: ``peft.tuners.x`` or the like."""
    if isinstance(node, ast.Import):
        yield from (tuple(alias.name.split(".")) for alias in node.names)
    if not isinstance(node, ast.ImportFrom):
        return
    parts = tuple(node.module.split(".")) if node.module else ()
    if node.level:
        folder = path.absolute().parents[node.level - 1].parts
        parts = (*folder[-_MAX_DEPTH:], *parts)[-_MAX_DEPTH:]
    yield parts
    yield from ((*parts, alias.name)[-_MAX_DEPTH:] for alias in node.names)


def _catches(node: ast.Try, inner: ast.AST, errors: set[str]) -> bool:
    """Return True in the body of such a try, and in the handler that is its fallback."""
    caught = errors | _ANY
    for handler in node.handlers:
        names = _exception_names(handler.type)
        if (not names or names & caught) and (inner in node.body or inner is handler):
            return True
    return False


def _exception_names(node: ast.expr | None) -> set[str]:
    if node is None:
        return set()
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return set(map(receiver, parts))


def is_asserted_none(source: Source, node: ast.expr, name: str) -> bool:
    """Return True if the function of a node asserts before it that a name is None, and gives it nothing else."""
    function = source.function(node)
    if function is None or assigned(function, name):
        return False
    before = (s.test for s in function.body if isinstance(s, ast.Assert) and s.lineno < node.lineno)
    return any(_is_none(test, name) for test in before)


def _is_none(test: ast.expr, name: str) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_is_none(value, name) for value in test.values)
    return (
        isinstance(test, ast.Compare)
        and is_name(test.left, name)
        and isinstance(test.ops[0], ast.Is)
        and is_constant(test.comparators[0], None)
    )


def _left_before(source: Source, outer: ast.AST, inner: ast.stmt) -> bool:
    """Return True if a guard before the statement, in the same block, leaves the block."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(outer, field, None)
        if not isinstance(block, list) or inner not in block:
            continue
        return any(
            isinstance(earlier, ast.If)
            and isinstance(earlier.body[-1], _LEAVES)
            and _asks(source, earlier.test)
            for earlier in block[: block.index(inner)]
        )
    return False


def _asks(source: Source, test: ast.AST) -> bool:
    """Return True if an expression depends on the release or on which names exist."""
    flags = _flags(source) | source.imported_flags
    for node in ast.walk(test):
        if isinstance(node, (ast.Name, ast.Attribute)):
            name = receiver(node)
            if name in _QUESTIONS or _WORDS.search(name) or name in flags:
                return True
    return False


@cache
def _flags(source: Source) -> frozenset[str]:
    """Return names that are assigned from such a question, or beside an import that may fail."""
    return frozenset(
        name
        for node in _assignments(source)
        if (_is_question(node) and not _reads_or_defaults(node)) or _beside_import(source, node)
        for name in _targets(node)
    )


@cache
def _release_flags(source: Source) -> frozenset[str]:
    """Return names of a module that are assigned from a version, or beside an import of transformers that may fail."""
    return frozenset(
        name
        for node in _assignments(source)
        if _names_version(node) or _beside_import(source, node, "transformers")
        for name in _targets(node)
    )


def _assignments(source: Source) -> Iterator[_Assignment]:
    for kind in (ast.Assign, ast.AnnAssign):
        yield from (node for node in source.by_kind.get(kind, ()) if node.value is not None)


def _targets(node: _Assignment) -> Iterator[str]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, ast.Attribute):
            yield target.attr


def _is_question(node: _Assignment) -> bool:
    assert node.value is not None
    return any(
        (isinstance(inner, (ast.Name, ast.Attribute)) and receiver(inner) in _QUESTIONS)
        or (isinstance(inner, ast.Name) and _WORDS.search(inner.id))
        or (isinstance(inner, ast.Attribute) and inner.attr == "__version__")
        for inner in ast.walk(node.value)
    )


def _reads_or_defaults(node: _Assignment) -> bool:
    """Return True for ``x = config.x if hasattr(config, "x") else …``: a value with a default, and no answer."""
    if not isinstance(node.value, ast.IfExp):
        return False
    asked = {
        inner.args[1].value
        for inner in inside(node.value.test, ast.Call)
        if is_name(inner.func, "hasattr")
        and len(inner.args) == 2
        and isinstance(inner.args[1], ast.Constant)
    }
    return bool(asked) and asked <= set(_targets(node))


def _names_version(node: _Assignment) -> bool:
    """Return True if a value compares the version of transformers."""
    assert node.value is not None
    names = {inner.id for inner in inside(node.value, ast.Name)}
    attributes = {inner.attr for inner in inside(node.value, ast.Attribute)}
    return ("transformers" in names and "__version__" in attributes) or any(
        map(_RELEASE.search, names)
    )


def _beside_import(source: Source, node: ast.AST, package: str = "") -> bool:
    """Return True in a try that expects an import to fail: one of a package, if it is given."""
    for outer in source.ancestors(node):
        if not isinstance(outer, ast.Try):
            continue
        imports = inside(outer, ast.ImportFrom)
        is_of_package = any((each.module or "").startswith(package) for each in imports)
        errors = [_exception_names(h.type) & (_IMPORT_ERRORS | _ANY) for h in outer.handlers]
        if any(errors) and (not package or is_of_package):
            return True
    return False
