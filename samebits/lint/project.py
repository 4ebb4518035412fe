"""All files of one command: classes with their bases across files, and what models are made of."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from samebits.base.checkpoint import json_of
from samebits.lint.problem import Edit, Problem
from samebits.lint.source import Function, Source

if TYPE_CHECKING:
    from samebits.lint.releases import Releases

_Node = TypeVar("_Node", bound=ast.AST)
_CONFIGS = {"PretrainedConfig", "PreTrainedConfig"}
_LIBRARY_MODEL = (
    "Model",
    "ForCausalLM",
    "LMHeadModel",
    "ForMaskedLM",
    "ForConditionalGeneration",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)


class Class(NamedTuple):
    """One class of the project."""

    source: Source
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """The name in its file."""
        return self.node.name

    def methods(self) -> Iterator[Function]:
        """Yield the methods in the class's own body."""
        yield from (node for node in self.node.body if isinstance(node, Function))

    def method(self, name: str) -> Function | None:
        """Return an own method by its name."""
        return next((m for m in self.methods() if m.name == name), None)

    def attribute(self, name: str) -> ast.expr | None:
        """Return the value that the class's own body assigns to a name."""
        for node in self.node.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                assert isinstance(node, (ast.Assign, ast.AnnAssign))
                return node.value
        return None


class Project:
    """The files of one folder, or of one command, that import each other."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = list(sources)
        self.classes = [Class(s, node) for s in self.sources for node in s.classes.values()]
        self._by_name: dict[str, list[Class]] = {}
        for entry in self.classes:
            self._by_name.setdefault(entry.name, []).append(entry)
        self._ancestors: dict[int, tuple[list[Class], set[str]]] = {}

    def nodes(self, kind: type[_Node]) -> Iterator[tuple[Source, _Node]]:
        """Yield every node of one kind, with its file."""
        for source in self.sources:
            yield from ((source, node) for node in source.by_kind.get(kind, ()))

    def resolve(self, source: Source, node: ast.AST | None) -> Class | None:
        """Return the class of the project that an expression names."""
        name = source.dotted(node)
        if not name or name.startswith(("transformers.", "torch.")):
            return None
        last = name.rpartition(".")[2]
        if "." not in name and name in source.classes:
            return Class(source, source.classes[name])
        candidates = self._by_name.get(last, [])
        if "." not in name and name not in source.imports:
            return None
        near = [c for c in candidates if c.source.path.parent == source.path.parent]
        return (near or candidates)[0] if len(near or candidates) == 1 else None

    def family(self, entry: Class) -> tuple[list[Class], set[str]]:
        """Return a class with its ancestors in the project, and the bases outside of it.

        A base of transformers has its dotted name; any other has the name in the file.
        """
        cached = self._ancestors.get(id(entry.node))
        if cached is not None:
            return cached
        own: list[Class] = [entry]
        outside: set[str] = set()
        self._ancestors[id(entry.node)] = (own, outside)
        for base in entry.node.bases:
            parent = self.resolve(entry.source, base)
            if parent is None:
                outside.add(entry.source.dotted(base) or "?")
                continue
            if parent.node is entry.node:
                continue
            classes, bases = self.family(parent)
            own += [c for c in classes if c not in own]
            outside |= bases
        return own, outside

    def is_model(self, entry: Class) -> bool:
        """Return True for a class that derives from a model class of transformers."""
        return any(map(is_library_model, self.family(entry)[1]))

    @cached_property
    def makes_classes(self) -> bool:
        """True if code makes classes with ``type(name, bases, body)``, whose bases nobody can read."""
        return any(
            source.dotted(node.func) == "type" and len(node.args) == 3
            for source, node in self.nodes(ast.Call)
        )

    def only_base_model(self, entry: Class, *, of_models: bool = False) -> bool:
        """Return True if every base outside of the project is ``PreTrainedModel`` or harmless.

        With ``of_models``, so are ``BertPreTrainedModel`` and its like, the bases of one model's classes:
        none of them has an ``__init__`` of its own that finishes the model.
        """
        if self.makes_classes:
            return False
        outside = self.family(entry)[1]
        names = {name.rpartition(".")[2] for name in outside if name.startswith("transformers.")}
        foreign = {n for n in outside if not n.startswith("transformers.")}
        harmless = {"nn.Module", "torch.nn.Module", "ABC", "abc.ABC", "object"}
        bases = {n for n in names if of_models and n.endswith("PreTrainedModel")}
        bases |= names & {"PreTrainedModel"}
        mixins = {"GenerationMixin", "ModuleUtilsMixin", "PushToHubMixin"}
        return bool(bases) and names - bases <= mixins and foreign <= harmless

    def has_generation(self, entry: Class) -> bool:
        """Return True if a class derives from ``GenerationMixin``, itself or by a class of the project."""
        return any(name.rpartition(".")[2] == "GenerationMixin" for name in self.family(entry)[1])

    @cached_property
    def models(self) -> list[Class]:
        """The classes that derive from a model class of transformers."""
        return [entry for entry in self.classes if self.is_model(entry)]

    @cached_property
    def configs(self) -> list[Class]:
        """The classes that derive from a config class of transformers."""
        return [c for c in self.classes if any(map(is_config, self.family(c)[1]))]

    @cached_property
    def parts(self) -> list[Class]:
        """The models and every class that their code names, directly or not."""
        parts = {id(entry.node): entry for entry in self.models}
        todo: list[tuple[Source, ast.AST]] = [(e.source, e.node) for e in self.models]
        visited: set[int] = set()
        while todo:
            source, node = todo.pop()
            for inner in ast.walk(node):
                if not isinstance(inner, (ast.Name, ast.Attribute)):
                    continue
                entry = self.resolve(source, inner)
                if entry is not None and id(entry.node) not in parts:
                    parts[id(entry.node)] = entry
                    todo.append((entry.source, entry.node))
                elif isinstance(inner, ast.Name):
                    for owner, body in self._named_values(source, inner.id):
                        if id(body) not in visited:
                            visited.add(id(body))
                            todo.append((owner, body))
        return list(parts.values())

    def _named_values(self, source: Source, name: str) -> Iterator[tuple[Source, ast.AST]]:
        """Yield top-level functions and tables of classes (``ATTENTION_CLASSES``) of a name."""
        for owner in self.sources:
            if owner is source or name in source.imports:
                yield from ((owner, n) for n in _globals(owner).get(name, ()))

    def subclasses(self, entry: Class) -> list[Class]:
        """Return the classes of the project that derive from a class."""
        return [c for c in self.classes if c != entry and entry in self.family(c)[0]]

    def is_part(self, entry: Class) -> bool:
        """Return True if another class of the project makes one, and no auto class loads it."""
        if entry.name in self.loaded_as(entry.source):
            return False
        return any(
            isinstance(node, ast.Call) and self.resolve(owner.source, _maker(node)) == entry
            for owner in self.classes
            if owner.node is not entry.node
            for node in ast.walk(owner.node)
        )

    def function(self, source: Source, node: ast.AST) -> tuple[Source, Function] | None:
        """Return the top-level function of the project that a name means."""
        if not isinstance(node, ast.Name):
            return None
        for owner in [source, *self.sources]:
            if owner is source or node.id in source.imports:
                for value in _globals(owner).get(node.id, ()):
                    if isinstance(value, Function):
                        return owner, value
        return None

    def checkpoint(self, source: Source) -> dict[str, Any] | None:
        """Return the config.json beside a file, if there is one."""
        return _json(source.path.parent / "config.json")

    def loaded_as(self, source: Source) -> set[str]:
        """Return the names of classes that config.json beside a file declares in ``auto_map``."""
        config = self.checkpoint(source) or {}
        values = config.get("auto_map")
        words = values.values() if isinstance(values, dict) else []
        return {str(word).rpartition(".")[2] for word in words}

    def config_of(self, source: Source, node: ast.AST, where: ast.AST) -> Class | str | None:
        """Return the class of a config expression: one of the project, or a library's dotted name.

        ``node`` is ``config`` or ``self.config``, at the node ``where``. None if it is not certain.
        """
        annotation = None
        function = source.function(where)
        owner = source.class_of(where)
        if isinstance(node, ast.Name) and function is not None:
            annotation = _annotation(function, node.id)
        elif owner is not None and (init := Class(source, owner).method("__init__")) is not None:
            annotation = _annotation(init, "config")
        if annotation is not None:
            if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
                annotation = ast.Name(annotation.value, ast.Load())
            return self.resolve(source, annotation) or source.from_library(annotation) or None
        if owner is not None:
            for entry in self.family(Class(source, owner))[0]:
                declared = entry.attribute("config_class")
                if declared is not None:
                    owner_class = self.resolve(entry.source, declared)
                    return owner_class or entry.source.from_library(declared) or None
        near = [c for c in self.configs if c.source.path.parent == source.path.parent]
        return near[0] if len(near) == 1 else None


def _maker(call: ast.Call) -> ast.expr:
    """Return what a call makes: ``Model`` of ``Model(config)`` and ``Model._from_config(config)``."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in {"_from_config", "from_config"}:
        return func.value
    return func


def _globals(source: Source) -> dict[str, list[ast.AST]]:
    """Return top-level functions, and values of top-level assignments, by name."""
    values: dict[str, list[ast.AST]] | None = source.__dict__.get("_globals")
    if values is None:
        values = {}
        for node in source.tree.body:
            if isinstance(node, Function):
                values.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        values.setdefault(target.id, []).append(node.value)
        source.__dict__["_globals"] = values
    return values


def _json(path: Path) -> dict[str, Any] | None:
    value = json_of(path)
    return value if isinstance(value, dict) else None


def _annotation(function: Function, name: str) -> ast.expr | None:
    for argument in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]:
        if argument.arg == name:
            return argument.annotation
    return None


def is_library_model(dotted: str) -> bool:
    """Return True for the dotted name of a model class of transformers."""
    if not dotted.startswith("transformers."):
        return False
    last = dotted.rpartition(".")[2]
    return last.endswith(("PreTrainedModel", *_LIBRARY_MODEL)) and not last.startswith("Auto")


def is_config(dotted: str) -> bool:
    """Return True for the dotted name of a config class of transformers."""
    last = dotted.rpartition(".")[2]
    return dotted.startswith("transformers.") and last.endswith("Config")


def is_base_config(dotted: str) -> bool:
    """Return True for ``PretrainedConfig``, by both of its names."""
    return dotted.rpartition(".")[2] in _CONFIGS


def problem(
    code: str,
    source: Source,
    node: ast.AST,
    message: str,
    releases: Releases,
    remedy: str,
    edits: Iterable[Edit] = (),
) -> Problem:
    """Return a problem at a node."""
    start, end = source.span(node)
    return Problem(
        code,
        source.path,
        *source.position(start),
        *source.position(end),
        message,
        releases,
        remedy,
        tuple(edits),
    )


def receiver(node: ast.AST) -> str:
    """Return the last name of an expression: ``tokenizer`` of ``self.tokenizer``; empty if none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_super(node: ast.AST) -> bool:
    """Return True for ``super()``."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    )


def is_base_init(call: ast.Call) -> bool:
    """Return True for ``super().__init__(...)``."""
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "__init__"
        and is_super(function.value)
    )


def argument_names(function: Function) -> set[str]:
    """Return the arguments that a call can name."""
    return {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}


def is_self(node: ast.AST) -> bool:
    """Return True for ``self``."""
    return isinstance(node, ast.Name) and node.id == "self"


def own_attribute(node: ast.AST) -> str:
    """Return ``x`` of ``self.x``; '' for anything else."""
    return node.attr if isinstance(node, ast.Attribute) and is_self(node.value) else ""


def assigned(scope: ast.AST, target: str) -> list[ast.expr]:
    """Return the values that assignments in a function or a file give to an expression, as it is written."""
    return [
        node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign) and any(ast.unparse(t) == target for t in node.targets)
    ]


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """Return a keyword argument of a call."""
    return next((k for k in call.keywords if k.arg == name), None)


def asks(source: Source, node: ast.AST, *names: str) -> bool:
    """Return True if the function around a node names one of ``names``, as for getattr or hasattr."""
    function = source.function(node)
    return function is not None and any(
        isinstance(n, ast.Constant) and n.value in names for n in ast.walk(function)
    )


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Return True for a literal of this value and type."""
    return (
        isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value
    )


def mentions(node: ast.AST, text: str) -> bool:
    """Return True if a name, an attribute or a string in a node is ``text``."""
    return any(
        (isinstance(n, ast.Name) and n.id == text)
        or (isinstance(n, ast.Attribute) and n.attr == text)
        or (isinstance(n, ast.Constant) and n.value == text)
        for n in ast.walk(node)
    )
