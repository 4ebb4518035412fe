"""SB3xx: what loading makes of buffers, parameters and constructors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from samebits.lint.guards import guarded
from samebits.lint.problem import Edit, LintRule, Problem
from samebits.lint.project import Class, Project, is_library_model, problem
from samebits.lint.releases import Releases, between, since, union
from samebits.lint.source import Source
from samebits.lint.syntax import (
    Function,
    assigned,
    inside,
    is_constant,
    is_name,
    is_super,
    keyword,
    mentions,
    method_call,
    own_attribute,
    receiver,
)

FACTORIES = {
    "arange",
    "linspace",
    "logspace",
    "tensor",
    "zeros",
    "ones",
    "full",
    "rand",
    "randn",
    "eye",
}
_SHAPES = {"shape", "size", "ndim", "dim", "numel", "dtype"}
_RELEASES_OF_BUFFERS = since("5.0")


def _registered(node: ast.AST) -> tuple[str, ast.expr] | None:
    """Return name and value of ``self.register_buffer(name, value, persistent=False)``."""
    owner, called = method_call(node)
    if not isinstance(node, ast.Call) or called != "register_buffer" or not is_name(owner, "self"):
        return None
    keywords = {k.arg: k.value for k in node.keywords}
    places = dict(zip(("name", "tensor", "persistent"), node.args, strict=False)) | keywords
    name, value = places.get("name"), places.get("tensor")
    if not is_constant(places.get("persistent"), False) or value is None:
        return None
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return None
    return name.value, value


def constructor(project: Project, entry: Class) -> list[tuple[Class, Function]]:
    """Return ``__init__`` and the methods that it calls on self, of the class and its ancestors."""
    family = project.family(entry).own
    methods: list[tuple[Class, Function]] = []
    todo = ["__init__"]
    while todo:
        name = todo.pop()
        for owner in family:
            method = owner.method(name)
            if method is None or (owner, method) in methods:
                continue
            methods.append((owner, method))
            todo += filter(None, map(own_attribute, ast.walk(method)))
            break
    return methods


def _unwritten(project: Project) -> Iterator[Problem]:
    rewritten = _written_by_init(project)
    for entry in project.loaded_parts:
        source = entry.source
        methods = [m for owner, m in constructor(project, entry) if owner.node is entry.node]
        for method in methods:
            for node in ast.walk(method):
                buffer = _registered(node)
                if buffer is None or _without_values(source, buffer[1]):
                    continue
                if _is_switched_off(project.checkpoint(source) or {}, buffer[1]):
                    continue
                if _is_made_for_an_option(method, buffer[1]):
                    continue
                name = buffer[0]
                if name in rewritten or _rewritten_in_use(entry, methods, name):
                    continue
                if _filled_by_library(project, entry) or guarded(source, node):
                    continue
                yield problem(
                    source,
                    node,
                    f"loading loses what __init__ computed for the buffer {name}: no load fills it, "
                    "and nothing writes it again, so it is uninitialised memory",
                    _RELEASES_OF_BUFFERS,
                    "compute the table in forward from plain attributes, or write it again in "
                    "_init_weights",
                )


def _without_values(source: Source, value: ast.expr) -> bool:
    """Return True for a buffer that has no values yet."""
    if is_constant(value, None):
        return True
    return isinstance(value, ast.Call) and source.dotted(value.func) in {
        "torch.empty",
        "torch.Tensor",
    }


def _is_switched_off(config: dict[str, Any], value: ast.expr) -> bool:
    """Return True for ``table if config.field else None`` where config.json has a false value in that field."""
    if not isinstance(value, ast.IfExp) or not is_constant(value.orelse, None):
        return False
    is_field = isinstance(value.test, ast.Attribute) and receiver(value.test.value) == "config"
    return is_field and not config.get(value.test.attr, True)  # type: ignore[attr-defined]


def _is_made_for_an_option(method: Function, value: ast.expr) -> bool:
    """Return True for a table that is None unless an argument is given, which is None by default."""
    arguments = method.args
    places = [*arguments.posonlyargs, *arguments.args][-len(arguments.defaults) or None :]
    defaults = [
        *zip(places, arguments.defaults, strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    options = {place.arg for place, default in defaults if is_constant(default, None)}
    values = assigned(method, value.id) if isinstance(value, ast.Name) else [value]
    return any(
        isinstance(value, ast.IfExp)
        and is_constant(value.orelse, None)
        and not options.isdisjoint(n.id for n in ast.walk(value.test) if isinstance(n, ast.Name))
        for value in values
    )


def _written_by_init(project: Project) -> set[str]:
    """Return every attribute and string in an ``_init_weights`` and in what it calls."""
    methods: dict[str, list[Function]] = {}
    for source in project.sources:
        for function in (n for n in source.nodes if isinstance(n, Function)):
            methods.setdefault(function.name, []).append(function)
    names: set[str] = set()
    visited: set[str] = {"forward", "__init__"}
    todo = list(methods.get("_init_weights", ()))
    while todo:
        for node in ast.walk(todo.pop()):
            word = receiver(node)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                word = node.value
            if word and word not in names:
                names.add(word)
                if word not in visited:
                    visited.add(word)
                    todo += methods.get(word, [])
    return names


def _rewritten_in_use(entry: Class, constructor: list[Function], name: str) -> bool:
    """Return True if a method that is not of the constructor may well write the buffer first."""
    for method in entry.methods():
        if method in constructor and method.name == "__init__":
            continue
        if method.name in {"reset_parameters", "_apply"} and mentions(method, name):
            return True
        for node in ast.walk(method):
            if (
                method not in constructor
                and _writes(node, name)
                and not _tests_values(method, node)
                and not _past_the_table(constructor, method, node)
            ):
                return True
            if _writes_through(entry, constructor, node, name) and not _only_longer(method, node):
                return True
    return False


def _writes(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return own_attribute(node) == name and isinstance(node.ctx, ast.Store)
    if (buffer := _registered(node)) is not None:
        return buffer[0] == name
    owner, called = method_call(node)
    return called == "copy_" and owner is not None and mentions(owner, name)


def _writes_through(entry: Class, constructor: list[Function], node: ast.AST, name: str) -> bool:
    """Return True for a call of one of the constructor's methods that registers the buffer."""
    owner, called = method_call(node)
    method = entry.method(called) if is_name(owner, "self") else None
    if method is None or method not in constructor:
        return False
    buffers = map(_registered, ast.walk(method))
    return any(buffer is not None and buffer[0] == name for buffer in buffers)


def _only_longer(method: Function, call: ast.AST) -> bool:
    """Return True in the constructor, and where the call is made only for longer sequences."""
    if method.name == "__init__":
        return True
    tests = _tests_around(method, call)
    return bool(tests) and not any(is_constant(n, None) for test in tests for n in ast.walk(test))


def _tests_values(method: Function, write: ast.AST) -> bool:
    """Return True if the write is made only for certain values of memory: no remedy."""
    reductions = {"any", "all", "isnan", "sum", "max", "abs", "count_nonzero", "equal", "allclose"}
    return any(
        n.attr in reductions
        for test in _tests_around(method, write)
        for n in inside(test, ast.Attribute)
    )


def _tests_around(method: Function, node: ast.AST) -> list[ast.expr]:
    """Return the conditions of every ``if`` that holds a node, in its condition or in a branch."""
    return [n.test for n in inside(method, ast.If) if node in ast.walk(n)]


def _past_the_table(constructor: list[Function], method: Function, write: ast.AST) -> bool:
    """Return True if the write is made only for sequences longer than those that __init__ computed."""
    return any(
        _is_longer(constructor, n.test)
        for n in inside(method, ast.If)
        if any(write in ast.walk(child) for child in n.body)
    )


def _is_longer(constructor: list[Function], test: ast.expr) -> bool:
    """Return True for ``length > self.ATTRIBUTE`` where the constructor sets it to no literal such as 0."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    sides = {ast.Gt: test.comparators[0], ast.Lt: test.left}
    limit = own_attribute(sides.get(type(test.ops[0]), test))
    values = [
        node.value
        for method in constructor
        for node in inside(method, ast.Assign)
        if limit in map(own_attribute, node.targets)
    ]
    return bool(limit and values) and not any(map(_is_literal, values))


def _is_literal(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)


def _filled_by_library(project: Project, entry: Class) -> bool:
    """Return True if ``_init_weights`` of the library fills it: a rotary class of its form."""
    if "RotaryEmbedding" not in entry.name:
        return False
    family, outside = project.family(entry)
    if any(name.startswith("transformers.") for name in outside):
        return True
    form = ("original_inv_freq", "rope_type", "compute_default_rope_parameters")
    if not all(any(mentions(c.node, word) for c in family) for word in form):
        return False
    return not any(_drops_library_init(c) for c in project.models)


def _drops_library_init(entry: Class) -> bool:
    method = entry.method("_init_weights")
    return method is not None and not any(
        n.attr == "_init_weights" and is_super(n.value) for n in inside(method, ast.Attribute)
    )


def _library_rotary(project: Project) -> Iterator[Problem]:
    """Yield models whose ``_init_weights`` drops the library's remedy for its rotary embedding."""
    made = [name for entry in project.loaded_parts for name in _library_rotaries(entry)]
    if not made:
        return
    for entry in project.loaded:
        if not project.only_base_model(entry) or not _drops_library_init(entry):
            continue
        near = [
            name
            for c in [entry, *project.subclasses(entry)]
            for name in _library_rotaries_below(project, c)
        ]
        method = entry.method("_init_weights")
        if not near or method is None or mentions(method, "inv_freq"):
            continue
        yield problem(
            entry.source,
            method.body[0],
            f"this _init_weights does not call the one of PreTrainedModel, which fills inv_freq of "
            f"{near[0]}: it stays uninitialised memory",
            _RELEASES_OF_BUFFERS,
            "call super()._init_weights(module) first; 4.48 accepts it",
            _super_edits(entry, method),
        )


def _library_rotaries(entry: Class) -> Iterator[str]:
    for node in inside(entry.node, ast.Call):
        name = entry.source.from_library(node.func).rpartition(".")[2]
        if name.endswith("RotaryEmbedding"):
            yield name


def _library_rotaries_below(project: Project, entry: Class) -> list[str]:
    """Return the rotary classes of the library that a model's own classes make."""
    names: list[str] = []
    todo, visited = [entry], {id(entry.node)}
    while todo:
        current = todo.pop()
        names += _library_rotaries(current)
        for node in inside(current.node, ast.Name):
            part = project.resolve(current.source, node)
            if part is not None and id(part.node) not in visited:
                visited.add(id(part.node))
                todo.append(part)
    return names


def _super_edits(entry: Class, method: Function) -> list[Edit]:
    arguments = method.args.args
    if len(arguments) != 2 or not _is_direct(entry):
        return []
    first = method.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        if len(method.body) == 1:
            return []
        first = method.body[1]
    if not entry.source.own_lines(first):
        return []
    start = entry.source.line_start(first.lineno)
    pad = " " * first.col_offset
    line = f"{pad}super()._init_weights({arguments[1].arg}){entry.source.newline}"
    return [Edit(start, start, line)]


def _is_direct(entry: Class) -> bool:
    """Return True if the only base is PreTrainedModel, whose ``_init_weights`` is empty in 4.48."""
    names = [entry.source.from_library(base).rpartition(".")[2] for base in entry.node.bases]
    return names == ["PreTrainedModel"]


_INPLACE = {"normal_": "normal_", "uniform_": "uniform_", "zero_": "zeros_", "fill_": "constant_"}


def _overwrites(project: Project) -> Iterator[Problem]:
    registered = (_registered(node) for _, node in project.nodes(ast.Call))
    buffers = {buffer[0] for buffer in registered if buffer is not None}
    parameters = _own_parameters(project)
    for entry in project.loaded:
        method = entry.method("_init_weights")
        if method is None or mentions(method, "_is_hf_initialized"):
            continue
        for node in ast.walk(method):
            target = _overwritten(node) or _written(node, method, parameters)
            if target is None or guarded(entry.source, node):
                continue
            is_buffer = any(mentions(target, name) for name in buffers)
            if is_buffer and not _is_of_torch(entry.source, node):
                continue
            way = "through .data" if _overwritten(node) is not None else "in place"
            yield problem(
                entry.source,
                node,
                f"this writes {way}, so it replaces loaded weights by initial ones",
                _overwriting(target, method),
                _init_remedy(node),
                _init_edits(entry.source, node, target),
            )


def _overwriting(target: ast.expr, method: Function) -> Releases:
    """Return the releases that call ``_init_weights`` where the target is loaded."""
    if isinstance(target, ast.Name) and _is_inner(target.id, method):
        return since("5.0", note="from 5.3 on in modules with a buffer that no load fills")
    last, remote = ("5.1", "5.0 and 5.1") if _is_own_weight(target) else ("5.2", "5.0 to 5.2")
    # 5.13 spares all custom code as remote code
    return union(between("5.0", last), between("5.3", "5.12"), note=f"remote code: only {remote}")


def _is_inner(name: str, method: Function) -> bool:
    """Return True for ``p`` of ``for name, p in module.named_parameters()``, which has those of inner modules."""
    return any(
        method_call(loop.iter)[1] in {"named_parameters", "parameters"}
        and any(is_name(node, name) for node in ast.walk(loop.target))
        for loop in inside(method, ast.For)
    )


def _is_of_torch(source: Source, node: ast.AST) -> bool:
    """Return True below a test for a class of torch.nn, whose ``bias`` is a parameter whatever own buffers are called."""
    tests = (outer.test for outer in source.ancestors(node) if isinstance(outer, ast.If))
    classes = (name for test in tests for name in inside(test, ast.Attribute))
    return any(source.dotted(name).startswith("torch.nn.") for name in classes)


_USUAL = frozenset({"weight", "bias"})


def _is_own_weight(target: ast.expr) -> bool:
    """Return True for ``module.weight`` and ``module.bias``: 5.2 spares a module whose own weight is loaded."""
    is_usual = isinstance(target, ast.Attribute) and target.attr in _USUAL
    return not isinstance(target, ast.Attribute) or (
        is_usual and isinstance(target.value, ast.Name)
    )


def _own_parameters(project: Project) -> frozenset[str]:
    """Return the attributes to which the code assigns an nn.Parameter, and those of torch's own modules."""
    made = {
        target.attr
        for _, node in project.nodes(ast.Assign)
        if isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func).rpartition(".")[2] == "Parameter"
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    return _USUAL | made


def _written(node: ast.AST, method: Function, parameters: frozenset[str]) -> ast.expr | None:
    """Return the parameter that ``module.scale.copy_(x)`` writes to, of the module that the method gets."""
    target, called = method_call(node)
    if called not in {*_INPLACE, "copy_"} or not isinstance(target, ast.Attribute):
        return None
    root: ast.expr = target
    while isinstance(root, ast.Attribute):
        root = root.value
    is_of_module = is_name(root, *(argument.arg for argument in method.args.args[1:]))
    return target if is_of_module and target.attr in parameters else None


def _init_remedy(node: ast.AST) -> str:
    """Return what to write in place of a call; torch.nn.init has no copy."""
    if method_call(node)[1] == "copy_":
        return "write it only if not getattr(parameter, '_is_hf_initialized', False), which 5.x sets on what it loaded"
    return "use the functions of torch.nn.init, which leave alone what was loaded"


def _overwritten(node: ast.AST) -> ast.expr | None:
    """Return what ``x.weight.data.normal_()`` or ``x.weight.data[i].zero_()`` writes to, less .data."""
    owner, called = method_call(node)
    if not called.endswith("_") or called.startswith("_"):
        return None
    if isinstance(owner, ast.Subscript):
        owner = owner.value
    if isinstance(owner, ast.Attribute) and owner.attr == "data":
        return owner.value
    return None


def _init_edits(source: Source, node: ast.AST, target: ast.expr) -> list[Edit]:
    assert isinstance(node, ast.Call)
    owner, called = method_call(node)
    if isinstance(owner, ast.Subscript):
        return _padding_edits(source, node, target)
    name = _INPLACE.get(called)
    init = _init_module(source)
    plain = all(k.arg in {"mean", "std"} for k in node.keywords) and not any(
        isinstance(a, ast.Starred) for a in node.args
    )
    if name is None or not init or not plain or (name == "zeros_" and (node.args or node.keywords)):
        return []
    if name == "constant_" and (len(node.args) != 1 or node.keywords):
        return []
    if name == "constant_" and any(is_constant(node.args[0], value) for value in (1, 1.0)):
        start, end = source.span(node)
        return [Edit(start, end, f"{init}.ones_({source.segment(target)})")]
    start, stop = source.span(node)
    opened = source.text.index("(", source.span(node.func)[1]) + 1
    comma = ", " if node.args or node.keywords else ""
    return [
        Edit(start, opened, f"{init}.{name}({source.segment(target)}{comma}"),
        Edit(stop, stop, ""),
    ]


def _padding_edits(source: Source, node: ast.Call, target: ast.expr) -> list[Edit]:
    """Return the edit of ``if …:`` around the write of one row, so that it spares loaded ones."""
    statement = source.parents.get(node)
    outer = source.parents.get(statement) if isinstance(statement, ast.Expr) else None
    if not isinstance(outer, ast.If) or outer.orelse or outer.body != [statement]:
        return []
    start, end = source.span(outer.test)
    loose = isinstance(outer.test, (ast.IfExp, ast.Lambda, ast.NamedExpr)) or (
        isinstance(outer.test, ast.BoolOp) and isinstance(outer.test.op, ast.Or)
    )
    if "\n" in source.text[start:end] or source.text[end : end + 1] == ")":
        return []
    spares = f' and not getattr({source.segment(target)}, "_is_hf_initialized", False)'
    edits = [Edit(end, end, (")" if loose else "") + spares)]
    return [Edit(start, start, "("), *edits] if loose else edits


def _init_module(source: Source) -> str:
    """Return how a file can name torch.nn.init, from its top-level imports; empty if it cannot."""
    for name, entries in source.imports.items():
        if len(entries) != 1 or source.parents.get(entries[0].node) is not source.tree:
            continue
        word = {"torch": f"{name}.nn.init", "torch.nn": f"{name}.init", "torch.nn.init": name}
        if (init := word.get(entries[0].dotted)) is not None:
            return init
    return ""


def _needs_values(project: Project) -> Iterator[Problem]:
    for entry in project.loaded_parts:
        for owner, method in constructor(project, entry):
            if owner.node is not entry.node:
                continue
            for node in ast.walk(method):
                yield from _value_problem(entry.source, method, node)
                yield from _kept_problem(entry, method, node)
                if method.name == "__init__":
                    yield from _nested_load(project, entry, method, node)


def _value_problem(source: Source, method: Function, node: ast.AST) -> Iterator[Problem]:
    call = _value_of(source, node)
    if call is None:
        return
    made = _factory(source, method, call)
    if made is None or guarded(source, node) or keyword(made, "device") is not None:
        return
    assert isinstance(node, ast.Call)
    name = source.dotted(made.func).rpartition(".")[2]
    yield problem(
        source,
        node,
        f"__init__ needs the values of torch.{name}(), which has none on the meta device",
        between("5.0", "5.5") if name == "linspace" else since("5.0"),
        "compute the numbers in plain Python or numpy, or make the tensor with device='cpu'",
        _on_cpu(source, made) if made in ast.walk(method) else (),
    )


def _on_cpu(source: Source, made: ast.Call) -> list[Edit]:
    """Return the edit that makes a tensor on the CPU."""
    end = source.span(made)[1] - 1
    comma = "" if source.text[:end].rstrip().endswith((",", "(")) else ", "
    return [Edit(end, end, f'{comma}device="cpu"')]


def _kept_problem(entry: Class, method: Function, node: ast.AST) -> Iterator[Problem]:
    """Find a tensor in a plain attribute, as the load gives values to parameters and buffers alone."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return
    source, name = entry.source, own_attribute(node.targets[0])
    made = _factory(source, method, node.value) if name else None
    if made is None or guarded(source, node) or keyword(made, "device") is not None:
        return
    if name in _written_otherwise(entry, node) or not _reads_values(entry, method, name):
        return
    yield problem(
        source,
        node,
        f"self.{name} is neither a parameter nor a buffer, so it stays on the meta device, without values",
        since("5.0"),
        "make it with device='cpu', or keep plain numbers and make the tensor in forward",
        _on_cpu(source, made) if made in ast.walk(method) else (),
    )


def _written_otherwise(entry: Class, once: ast.Assign) -> set[str]:
    """Return the attributes that are buffers or parameters, or that another statement writes.

    A value that is made on the device of the one before it does not count: it stays on the meta device, too.
    """
    names = set()
    for node in ast.walk(entry.node):
        if isinstance(node, ast.Call) and own_attribute(node.func) and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                names.add(first.value)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            is_other = node is not once.targets[0] and not _is_on_its_device(entry.source, node)
            names |= {own_attribute(node)} if is_other else set()
    return names


def _is_on_its_device(source: Source, target: ast.Attribute) -> bool:
    """Return True for ``self.t = torch.arange(4, device=self.t.device)``, and for a move, ``self.t = self.t.to(device)``."""
    statement = source.parents.get(target)
    if not isinstance(statement, ast.Assign):
        return False
    moved, called = method_call(statement.value)
    if moved is not None and called in {"to", "cuda"} and own_attribute(moved) == target.attr:
        return True
    return any(
        node.attr == "device" and own_attribute(node.value) == target.attr
        for node in inside(statement.value, ast.Attribute)
    )


def _reads_values(entry: Class, made_in: Function, name: str) -> bool:
    """Return True if another method uses an attribute, and not its shape alone."""
    return any(
        own_attribute(node) == name
        and not (
            isinstance(around := entry.source.parents.get(node), ast.Attribute)
            and around.attr in _SHAPES
        )
        for method in entry.methods()
        if method is not made_in
        for node in ast.walk(method)
    )


def _value_of(source: Source, node: ast.AST) -> ast.expr | None:
    """Return the tensor whose values ``x.item()``, ``x.tolist()``, ``x.numpy()``, ``float(x)`` need."""
    if not isinstance(node, ast.Call):
        return None
    owner, called = method_call(node)
    if called in {"item", "tolist", "numpy"}:
        return owner if not node.args and not node.keywords else None
    if not is_name(node.func, "float", "int") or len(node.args) != 1:
        return None
    inner = node.args[0]
    is_of_torch = isinstance(inner, ast.Call) and source.dotted(inner.func).startswith("torch.")
    return inner if is_of_torch else None


def _factory(source: Source, method: Function, node: ast.expr) -> ast.Call | None:
    """Return the call of torch that certainly made a tensor without a device."""
    while True:
        if isinstance(node, ast.Call):
            name = source.dotted(node.func)
            if name.startswith("torch.") and name.removeprefix("torch.") in FACTORIES:
                return node
            owner, called = method_call(node)
            if owner is None or called not in {"float", "double", "long"}:
                return None
            node = owner
            continue
        if isinstance(node, ast.BinOp):
            return _factory(source, method, node.left) or _factory(source, method, node.right)
        if not isinstance(node, ast.Name):
            return None
        made = _bound_to(method, node.id)
        if made is None:
            return None
        node = made


def _bound_to(method: Function, name: str) -> ast.expr | None:
    """Return the only value of a local name, or what a loop takes it from."""
    values: list[ast.expr] = []
    for node in ast.walk(method):
        if isinstance(node, ast.Assign) and any(is_name(t, name) for t in node.targets):
            values.append(node.value)
        elif isinstance(node, (ast.For, ast.comprehension)) and any(
            is_name(t, name) for t in ast.walk(node.target)
        ):
            inside = not isinstance(node, ast.comprehension) or isinstance(node.target, ast.Name)
            values.append(node.iter if inside else ast.Constant(None))
    unique = {ast.dump(v) for v in values}
    if len(unique) != 1 or any(a.arg == name for a in method.args.args):
        return None
    return values[0]


_MAY_NOT_RUN = (ast.If, ast.IfExp, ast.Try, ast.With, ast.Lambda, Function)
"""Nodes around a call that may skip it, repeat it or change what it does."""


def runs_with(source: Source, method: ast.AST | None, node: ast.AST) -> bool:
    """Return True if a node of a method runs whenever the method does."""
    outers = takewhile(lambda outer: outer is not method, source.ancestors(node))
    return not any(isinstance(outer, _MAY_NOT_RUN) for outer in outers)


def _nested_load(
    project: Project, entry: Class, method: Function, node: ast.AST
) -> Iterator[Problem]:
    owner, called = method_call(node)
    if called != "from_pretrained" or not project.is_model(entry):
        return
    name = entry.source.from_library(owner)
    last = name.rpartition(".")[2]
    if not last.startswith("AutoModel") and not is_library_model(name):
        return
    if not runs_with(entry.source, method, node):
        return
    yield problem(
        entry.source,
        node,
        f"{last}.from_pretrained() in __init__ runs on the meta device: RuntimeError",
        since("5.0"),
        f"build the part with {last}.from_config(config); the checkpoint of the whole has its weights",
    )


def _all_unwritten(project: Project) -> Iterator[Problem]:
    yield from _unwritten(project)
    yield from _library_rotary(project)


RULES = (
    LintRule("SB301", "warning", _all_unwritten),
    LintRule("SB303", "warning", _overwrites),
    LintRule("SB305", "error", _needs_values),
)
