"""All files of one command: classes with their bases across files, and what models are made of."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from samebits.base.checkpoint import json_of
from samebits.lint.problem import Edit, Problem
from samebits.lint.releases import Releases
from samebits.lint.source import Source
from samebits.lint.syntax import Function, inside, is_name, is_super, method_call

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

    def base_init(self) -> ast.Call | None:
        """Return the first call of ``super().__init__(…)`` in the class's own ``__init__``."""
        calls = inside(self.method("__init__"), ast.Call)
        return next((c for c in calls if _is_base_init(c)), None)

    def attribute(self, name: str) -> ast.expr | None:
        """Return the value that the class's own body assigns to a name."""
        for node in self.node.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            if any(is_name(t, name) for t in targets):
                assert isinstance(node, (ast.Assign, ast.AnnAssign))
                return node.value
        return None


class Family(NamedTuple):
    """A class with its ancestors."""

    own: list[Class]
    """The class, and its ancestors in the project."""
    outside: set[str]
    """The bases outside of the project: the dotted name of one of transformers, the name in the file of any other."""

    @property
    def names_outside(self) -> set[str]:
        """The last parts of the names of ``outside``."""
        return {name.rpartition(".")[2] for name in self.outside}

    def method(self, name: str) -> Function | None:
        """Return a method of the class, or of the nearest ancestor in the project that has it."""
        methods = (each.method(name) for each in self.own)
        return next((method for method in methods if method is not None), None)


class Project:
    """The files of one folder, or of one command, that import each other."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = list(sources)
        self.classes = [Class(s, node) for s in self.sources for node in s.classes.values()]
        self._by_name: dict[str, list[Class]] = {}
        for entry in self.classes:
            self._by_name.setdefault(entry.name, []).append(entry)
        self._families: dict[int, Family] = {}

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

    @cached_property
    def stored(self) -> set[str]:
        """The names of attributes that code sets, on whatever object."""
        return {n.attr for _, n in self.nodes(ast.Attribute) if isinstance(n.ctx, ast.Store)}

    @cached_property
    def read(self) -> set[str]:
        """The names of attributes that code reads, on whatever object but ``super()``."""
        nodes = (node for _, node in self.nodes(ast.Attribute) if isinstance(node.ctx, ast.Load))
        return {node.attr for node in nodes if not is_super(node.value)}

    def family(self, entry: Class) -> Family:
        """Return a class with its ancestors in the project, and the bases outside of it."""
        cached = self._families.get(id(entry.node))
        if cached is not None:
            return cached
        family = self._families[id(entry.node)] = Family([entry], set())
        for base in entry.node.bases:
            parent = self.resolve(entry.source, base)
            if parent is None:
                family.outside.add(entry.source.dotted(base) or "?")
            elif parent.node is not entry.node:
                ancestors = self.family(parent)
                family.own.extend(c for c in ancestors.own if c not in family.own)
                family.outside.update(ancestors.outside)
        return family

    def is_model(self, entry: Class) -> bool:
        """Return True for a class that derives from a model class of transformers."""
        return any(map(is_library_model, self.family(entry).outside))

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
        outside = self.family(entry).outside
        names = {name.rpartition(".")[2] for name in outside if name.startswith("transformers.")}
        foreign = {n for n in outside if not n.startswith("transformers.")}
        harmless = {"nn.Module", "torch.nn.Module", "ABC", "abc.ABC", "object"}
        bases = {n for n in names if of_models and n.endswith("PreTrainedModel")}
        bases |= names & {"PreTrainedModel"}
        mixins = {"GenerationMixin", "ModuleUtilsMixin", "PushToHubMixin"}
        return bool(bases) and names - bases <= mixins and foreign <= harmless

    def has_generation(self, entry: Class) -> bool:
        """Return True if a class derives from ``GenerationMixin``, itself or by a class of the project."""
        return "GenerationMixin" in self.family(entry).names_outside

    @cached_property
    def models(self) -> list[Class]:
        """The classes that derive from a model class of transformers."""
        return [entry for entry in self.classes if self.is_model(entry)]

    @cached_property
    def configs(self) -> list[Class]:
        """The classes that derive from a config class of transformers."""
        return [c for c in self.classes if any(map(is_config, self.family(c).outside))]

    @cached_property
    def loaded(self) -> list[Class]:
        """The models that transformers loads: all but those whose own ``from_pretrained`` makes and fills them.

        It loads none of a checkpoint whose config.json declares such models alone.
        """
        declared = [m for m in self.models if m.name in self.loaded_as(m.source)]
        if declared and all(map(self.own_load, declared)):
            return []
        return [entry for entry in self.models if self.own_load(entry) is None]

    def own_load(self, entry: Class) -> Function | None:
        """Return the ``from_pretrained`` of a model that makes and fills it, with nothing of transformers' own."""
        own = self.family(entry).method("from_pretrained")
        if own is None or any(map(is_super, ast.walk(own))):
            return None
        called = {ast.unparse(n.func) for n in ast.walk(own) if isinstance(n, ast.Call)}
        is_whole = "cls" in called and any(name.endswith(".load_state_dict") for name in called)
        return own if is_whole else None

    @cached_property
    def parts(self) -> list[Class]:
        """The models and every class that their code names, directly or not."""
        return self._parts_of(self.models)

    @cached_property
    def loaded_parts(self) -> list[Class]:
        """The same of the models that transformers loads, without those that another package loads, such as optimum."""
        parts = self._parts_of(self.loaded)
        return [part for part in parts if not self._has_only_generate(part)]

    def _has_only_generate(self, entry: Class) -> bool:
        """Return True for a model of another package that has generate() from transformers, and nothing else."""
        outside = {name.rpartition(".")[2]: name for name in self.family(entry).outside}
        is_foreign = any(not n.startswith(("torch.", "transformers.")) for n in outside.values())
        return is_foreign and "GenerationMixin" in outside and not self.is_model(entry)

    def _parts_of(self, models: list[Class]) -> list[Class]:
        parts = {id(entry.node): entry for entry in models}
        todo: list[tuple[Source, ast.AST]] = [(e.source, e.node) for e in models]
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
        return [c for c in self.classes if c != entry and entry in self.family(c).own]

    def is_part(self, entry: Class) -> bool:
        """Return True if another class of the project makes one, and no auto class loads it."""
        if entry.name in self.loaded_as(entry.source):
            return False
        return any(
            self.resolve(owner.source, _maker(node)) == entry
            for owner in self.classes
            if owner.node is not entry.node
            for node in inside(owner.node, ast.Call)
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

    def declared(self, entry: Class, name: str) -> tuple[Class, ast.expr] | None:
        """Return the class that sets a class attribute, this one or an ancestor, with the value."""
        for each in self.family(entry).own:
            value = each.attribute(name)
            if value is not None:
                return each, value
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
        if owner is not None and (setter := self.declared(Class(source, owner), "config_class")):
            entry, declared = setter
            return (
                self.resolve(entry.source, declared) or entry.source.from_library(declared) or None
            )
        near = [c for c in self.configs if c.source.path.parent == source.path.parent]
        return near[0] if len(near) == 1 else None


def _maker(call: ast.Call) -> ast.expr:
    """Return what a call makes: ``Model`` of ``Model(config)`` and ``Model._from_config(config)``."""
    owner, name = method_call(call)
    return owner if owner and name in {"_from_config", "from_config"} else call.func


def _is_base_init(call: ast.Call) -> bool:
    owner, name = method_call(call)
    return name == "__init__" and owner is not None and is_super(owner)


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
    source: Source,
    node: ast.AST,
    message: str,
    releases: Releases,
    remedy: str,
    edits: Iterable[Edit] = (),
) -> Problem:
    """Return a problem at a node; its rule gives it the code."""
    start, end = map(source.position, source.span(node))
    return Problem("", source.path, *start, *end, message, releases, remedy, tuple(edits))


def asks(source: Source, node: ast.AST, *names: str) -> bool:
    """Return True if the function around a node names one of ``names``, as for getattr or hasattr."""
    function = source.function(node)
    return any(n.value in names for n in inside(function, ast.Constant))
