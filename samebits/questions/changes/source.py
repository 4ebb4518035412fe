"""The definitions of one source file of transformers, with digests that change when they compute otherwise.

A definition is digested by its bytecode after all that only tells something is removed: docstrings,
annotations, assertions, messages of errors, warnings and logs. So comments, line numbers and names of local
variables do not count either. The host's interpreter compiles all releases, whatever theirs is.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any, Literal, NamedTuple

Kind = Literal["function", "class", "constant"]
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.ClassDef

_TELLING = re.compile(r"docstring|auto_doc|deprecat")
"""Decorators that write documentation or warnings."""
_MESSAGES = frozenset({"logger", "logging", "warn", "warnings", "print"})
"""Names in calls that only tell the user something."""
_IS_FAST = 0x1
"""Flag of code with local variables of its own: of a function, not of a class."""


class Definition(NamedTuple):
    """A function with all that is defined inside it, the body of a class, or a constant of the module."""

    name: str
    """Qualified name, such as ``LlamaModel.forward``."""
    kind: Kind
    line: int
    digest: str
    names: frozenset[str]
    """Names that it refers to: globals, attributes, bases, and strings that may be names."""
    table: dict[str, frozenset[str]]
    """Key -> names that it refers to under this key only, as in ``{"linear": _compute_linear}``; of a
    function, field of the config -> names behind ``if self.config.field:`` only."""


class Source(NamedTuple):
    """One file."""

    definitions: dict[str, Definition]
    """Qualified name -> definition; of several under one name, as behind a condition, one of all."""
    imports: tuple[str, ...]
    """Modules, relative ones with their dots, and names imported from them: ``..utils.logging``."""
    by_line: dict[int, str]
    """First line of a function, nested ones too -> the definition that it is part of."""
    at_import: frozenset[str] = frozenset()
    """Functions that the import of the file calls."""


def read(text: bytes, path: str) -> Source:
    """Return the definitions of a file.

    Raises:
        SyntaxError, ValueError: this interpreter cannot read it.

    """
    bare = Bare()
    tree = bare.visit(ast.parse(text, path))
    codes = _codes(compile(tree, path, "exec", dont_inherit=True))
    by_line: dict[int, str] = {}
    definitions: dict[str, Definition] = {}
    for definition, lines in _definitions(tree, codes):
        earlier = definitions.get(definition.name)
        definitions[definition.name] = _joined(earlier, definition) if earlier else definition
        by_line |= dict.fromkeys(lines, definition.name)
    imports = tuple(dict.fromkeys(bare.imports))
    return Source(definitions, imports, by_line, frozenset(_called_at_import(tree)))


def _called_at_import(module: ast.Module) -> Iterator[str]:
    for statement in _statements(module):
        if not isinstance(statement, Function | ast.ClassDef):
            calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
            yield from (call.func.id for call in calls if isinstance(call.func, ast.Name))


def _joined(first: Definition, second: Definition) -> Definition:
    table = {
        key: first.table.get(key, frozenset()) | second.table.get(key, frozenset())
        for key in {*first.table, *second.table}
    }
    return first._replace(
        digest=_digest([first.digest, second.digest]), names=first.names | second.names, table=table
    )


class Bare(ast.NodeTransformer):
    """Removes what computes nothing.

    A function keeps as ``first_line`` its own, as ``lines`` those of all functions that are part of it, and
    as ``asks`` whether a condition in it asks for a field of the config.
    """

    def __init__(self) -> None:
        self.imports: list[str] = []
        self._lines: list[int] = []
        self._n_asked = 0

    def visit(self, node: ast.AST) -> Any:  # noqa: ANN401  as its base has it
        """Visit a node; nothing is removed from an expression."""
        if not isinstance(node, ast.expr):
            return super().visit(node)
        self._note(node)
        return node

    def _note(self, expression: ast.expr) -> None:
        """Note the functions in an expression, and what its conditions ask for."""
        rest: list[Any] = [expression]
        while rest:
            part = rest.pop()
            if isinstance(part, ast.Name | ast.Constant):
                continue
            if isinstance(part, ast.Lambda):
                self._lines.append(part.lineno)
            elif isinstance(part, ast.IfExp):
                self._n_asked += bool(_field(part.test))
            for name in getattr(part, "_fields", ()):
                value = getattr(part, name, None)
                if isinstance(value, list):
                    rest += value
                elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                    rest.append(value)

    def visit_If(self, node: ast.If) -> ast.AST:
        """Note what a condition asks for."""
        self._n_asked += bool(_field(node.test))
        return self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> ast.AST:
        """Note the modules."""
        self.imports += (alias.name for alias in node.names)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """Note the module, and its names, which may be modules."""
        name = "." * node.level + (node.module or "")
        separator = "" if name.endswith(".") else "."
        self.imports += [name, *(f"{name}{separator}{alias.name}" for alias in node.names)]
        return node

    def visit_Module(self, node: ast.Module) -> ast.AST:
        """Remove the docstring, as imports from the future come first."""
        node.body = node.body[ast.get_docstring(node, clean=False) is not None :]
        return self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit the parts of a node; a body that nothing is left of passes."""
        super().generic_visit(node)
        if getattr(node, "body", None) == [] and not isinstance(node, ast.Module):
            node.body = [ast.copy_location(ast.Pass(), node)]  # type: ignore[attr-defined]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Remove a docstring, and a call that warns or logs."""
        if isinstance(node.value, ast.Constant) or _is_message(node.value):
            return None
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Keep only that it raises, and which class."""
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if error is not None:
            self.visit(error)
        return ast.copy_location(ast.Raise(error, None), node)

    def visit_Assert(self, _node: ast.Assert) -> None:
        """Remove an assertion."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Remove an annotation."""
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Remove an annotation, and a declaration without a value."""
        if node.value is None:
            return None
        return self.generic_visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Remove the type of the result, and decorators that write documentation."""
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """Do the same."""
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Remove decorators that write documentation."""
        node.decorator_list = _computing(node.decorator_list)
        return self.generic_visit(node)

    def _function(self, node: Function) -> ast.AST:
        node.first_line = _first_line(node)  # type: ignore[union-attr]
        node.returns, node.decorator_list = None, _computing(node.decorator_list)
        n_lines, n_asked = len(self._lines), self._n_asked
        self._lines.append(node.first_line)  # type: ignore[union-attr]
        self.generic_visit(node)
        node.lines = self._lines[n_lines:]  # type: ignore[union-attr]
        node.asks = self._n_asked > n_asked  # type: ignore[union-attr]
        return node


def _is_message(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    names = set()
    function = node.func
    while isinstance(function, ast.Attribute):
        names.add(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        names.add(function.id)
    return bool(names & _MESSAGES)


def _computing(decorators: list[ast.expr]) -> list[ast.expr]:
    return [decorator for decorator in decorators if not _TELLING.search(ast.unparse(decorator))]


def _first_line(node: Function) -> int:
    """Return the first line as a code object has it, which begins with the first decorator."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _codes(module: CodeType) -> dict[int, CodeType]:
    """Return the code of every function that is in no other one, by its first line."""
    codes: dict[int, CodeType] = {}
    rest = [module]
    while rest:
        for constant in rest.pop().co_consts:
            if isinstance(constant, CodeType) and not constant.co_name.startswith("<"):
                codes[constant.co_firstlineno] = constant
                rest += [] if constant.co_flags & _IS_FAST else [constant]
    return codes


def _definitions(
    module: ast.Module, codes: Mapping[int, CodeType]
) -> Iterator[tuple[Definition, list[int]]]:
    """Yield each definition with the first lines of the functions that are part of it."""
    for prefix, scope, node in _nodes(module):
        if isinstance(node, ast.ClassDef):
            yield _of_class(prefix, node), []
        elif isinstance(node, Function):
            if not _is_empty(node) and (code := codes.get(_first_line(node))):
                yield _of_function(prefix, node, code), node.lines  # type: ignore[union-attr]
        elif scope is module:
            yield from ((_constant(name, value, node), []) for name, value in _assigned(node))


def functions(module: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yield the functions of a file that are in no other one, with their qualified names."""
    for prefix, _, node in _nodes(module):
        if isinstance(node, Function):
            yield f"{prefix}{node.name}", node


def _nodes(module: ast.Module) -> Iterator[tuple[str, Scope, ast.stmt]]:
    """Yield the statements of a file and of its classes: what precedes their names, the scope, the statement."""
    rest: list[tuple[str, Scope]] = [("", module)]
    while rest:
        prefix, scope = rest.pop()
        for node in _statements(scope):
            yield prefix, scope, node
            if isinstance(node, ast.ClassDef):
                rest.append((f"{prefix}{node.name}.", node))


def _is_empty(node: Function) -> bool:
    """Return True for a function that computes nothing, as its subclasses do it."""
    return all(isinstance(statement, (ast.Pass, ast.Raise)) for statement in node.body)


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a scope, those behind conditions too."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            yield from _statements(node)
        elif isinstance(node, ast.stmt):
            yield node


def _of_function(prefix: str, node: Function, code: CodeType) -> Definition:
    defaults = [part for part in (*node.args.defaults, *node.args.kw_defaults) if part]
    around = [*defaults, *node.decorator_list]
    digest = _digest([*map(ast.dump, around), repr(_facts(code))])
    switched = _switched(node) if node.asks else {}  # type: ignore[union-attr]
    names = {*_names(code), *_referred(around).names}.difference(*switched.values())
    line: int = node.first_line  # type: ignore[union-attr]
    return Definition(f"{prefix}{node.name}", "function", line, digest, frozenset(names), switched)


def _switched(node: Function) -> dict[str, frozenset[str]]:
    """Return field of the config -> names that stand behind a question for it only."""
    behind: dict[str, set[str]] = {}
    rest: list[tuple[ast.AST, str]] = [(part, "") for part in node.body]
    while rest:
        part, field = rest.pop()
        if isinstance(part, ast.If | ast.IfExp) and not field and (asked := _field(part.test)):
            body = part.body if isinstance(part, ast.If) else [part.body]
            rest += [(child, asked) for child in body]
            children: list[ast.AST] = [part.test, *_list(part.orelse)]
        else:
            children = list(ast.iter_child_nodes(part))
            behind.setdefault(field, set()).update(_own_names(part))
        rest += [(child, field) for child in children]
    return {
        field: frozenset(names.difference(*(behind[other] for other in behind if other != field)))
        for field, names in behind.items()
        if field
    }


def _list(value: ast.expr | list[ast.stmt]) -> list[ast.AST]:
    return [*value] if isinstance(value, list) else [value]


def _field(test: ast.expr) -> str:
    """Return the field of the config that a condition asks for; '' for any other condition."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    for part in parts:
        if isinstance(part, ast.Attribute):
            owner = part.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name == "config":
                return part.attr
    return ""


def _own_names(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node of a syntax tree refers to, its parts left out."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _facts(code: CodeType) -> tuple[object, ...]:
    """Return what a code object computes, without places and names of local variables."""
    constants = tuple(map(_constant_fact, code.co_consts))
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return code.co_code, constants, code.co_names, parameters


def _constant_fact(value: object) -> object:
    """Return a constant of a code object; the order of a set is another one in each process."""
    if isinstance(value, CodeType):
        return _facts(value)
    if isinstance(value, tuple):
        return tuple(map(_constant_fact, value))
    if isinstance(value, frozenset):
        return "set", sorted(repr(_constant_fact(part)) for part in value)
    return repr(value)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            yield constant


def _of_class(prefix: str, node: ast.ClassDef) -> Definition:
    """Return the body of a class: its bases, decorators and attributes with their values."""
    values = dict(pair for statement in _statements(node) for pair in _assigned(statement))
    around = [*node.bases, *(keyword.value for keyword in node.keywords), *node.decorator_list]
    attributes = sorted(f"{name}={ast.dump(value)}" for name, value in values.items())
    digest = _digest([*map(ast.dump, around), *attributes])
    references = _referred([*around, *values.values()])
    return Definition(f"{prefix}{node.name}", "class", node.lineno, digest, *references)


def _constant(name: str, value: ast.expr, node: ast.stmt) -> Definition:
    digest = _digest([ast.dump(value)])
    return Definition(name, "constant", node.lineno, digest, *_referred([value]))


def _assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that a statement assigns, with its value."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id not in ("logger", "__all__"):
                yield target.id, node.value


class _Referred(NamedTuple):
    """Names that expressions refer to; those under a key of a table apart."""

    names: frozenset[str]
    table: dict[str, frozenset[str]]


def _referred(parts: Iterable[ast.AST]) -> _Referred:
    names: set[str] = set()
    table: dict[str, frozenset[str]] = {}
    rest = list(parts)
    while rest:
        node = rest.pop()
        entries, others = _entries(node)
        for key, value in entries:
            below = _referred([value])
            all_names = below.names.union(*below.table.values())
            table[key] = table.get(key, frozenset()) | all_names
        rest += others
        names.update(_own_names(node))
    return _Referred(frozenset(names), table)


def _entries(node: ast.AST) -> tuple[list[tuple[str, ast.expr]], list[ast.AST]]:
    """Return the entries of a table, ``{"a": b}`` or ``[("a", b)]``, and the parts that are none."""
    pairs: list[tuple[ast.expr | None, ast.expr]] = []
    others: list[ast.AST] = []
    if isinstance(node, ast.Dict):
        pairs = list(zip(node.keys, node.values, strict=True))
    elif isinstance(node, ast.List):
        for part in node.elts:
            if isinstance(part, ast.Tuple) and len(part.elts) == 2:
                pairs.append((part.elts[0], part.elts[1]))
            else:
                others.append(part)
    entries = [
        (key.value, value)
        for key, value in pairs
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]
    if not entries or len(entries) < len(pairs):
        return [], list(ast.iter_child_nodes(node))
    return entries, others


def _digest(parts: Iterable[str]) -> str:
    return hashlib.blake2b(
        "\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8
    ).hexdigest()
