"""SB7xx: the cache of keys and values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from samebits.lint.guards import guarded, is_asserted_none
from samebits.lint.layers import library_class
from samebits.lint.names import layer_releases
from samebits.lint.problem import Edit, LintRule, Problem
from samebits.lint.project import Class, Project, asks, is_base_config, problem
from samebits.lint.releases import Releases, between, since, union
from samebits.lint.source import Source
from samebits.lint.syntax import (
    Function,
    argument_names,
    assigned,
    inside,
    is_constant,
    is_name,
    mentions,
    method_call,
    receiver,
)

_NAMES = {"past_key_values", "past_key_value", "past_kv", "kv_cache", "cache"}
_SURE = {"past_key_values", "past_key_value"}
_NO_POSITIONS = "cache_position"
_UPDATE = "_update_model_kwargs_for_generation"
_NO_TUPLE = since("5.0", note="None for an empty cache in 4.54 to 4.57")
"""Releases whose caches are no tuples."""

_NO_SIZE = since("5.20")
_NO_MAXIMUM = "use the length that a static cache was made with; a DynamicCache has no maximum"
_REMOVED = {
    "key_cache": (since("4.56"), "use cache.layers[i].keys if the cache has layers"),
    "value_cache": (since("4.56"), "use cache.layers[i].values if the cache has layers"),
    "seen_tokens": (since("4.54"), "use cache.get_seq_length()"),
    "_seen_tokens": (since("4.54"), "use cache.get_seq_length()"),
    "get_usable_length": (since("4.54"), "use cache.get_seq_length(layer_idx)"),
    "get_max_length": (between("4.49", "5.12"), _NO_MAXIMUM),
    "get_max_cache_shape": (_NO_SIZE, _NO_MAXIMUM),
    "max_cache_len": (_NO_SIZE, "use the length that the cache was made with"),
    "max_batch_size": (_NO_SIZE, "use the batch size that the cache was made with"),
    "to_legacy_cache": (
        since("5.0"),
        "return the cache itself; a pair of a layer is cache.layers[i].keys and .values",
    ),
    "from_legacy_cache": (
        since("5.0"),
        "write DynamicCache(), and cache.update(key, value, i) for each pair of an old tuple",
    ),
}
"""Attribute of a cache -> releases without it, and what to do instead."""
_OF_CACHES_ALONE = {"from_legacy_cache", "get_usable_length", "to_legacy_cache"}
"""Those that no other class has, whatever the variable is called."""


def _attributes(project: Project) -> Iterator[Problem]:
    defined = project.stored | {m.name for c in project.classes for m in c.methods()}
    for source, node in project.nodes(ast.Attribute):
        if not isinstance(node.ctx, ast.Load):
            continue
        if node.attr not in _REMOVED or node.attr in defined or guarded(source, node):
            continue
        if not _is_cache(source, node) or asks(source, node, node.attr, "layers"):
            continue
        releases, instead = _REMOVED[node.attr]
        yield problem(
            source,
            node,
            f"a cache has no {node.attr}: AttributeError",
            releases,
            instead,
        )


def _is_cache(source: Source, node: ast.Attribute) -> bool:
    """Return True if an attribute is one of a cache, by the name of either, or by the class it is read from."""
    if node.attr in _OF_CACHES_ALONE or receiver(node.value) in _NAMES:
        return True
    return source.from_library(node.value).endswith("Cache")


def _subscripts(project: Project) -> Iterator[Problem]:
    for source in project.sources:
        if not _in_models(project, source):
            continue
        for node in source.by_kind.get(ast.Subscript, ()):
            inner = node.value
            if not isinstance(inner, ast.Subscript) or not isinstance(node.ctx, ast.Load):
                continue
            if not is_name(inner.value, "past_key_values") or _knows_tuples(source, node):
                continue
            if not isinstance(inner.slice, (ast.Constant, ast.Name)):
                continue
            yield problem(
                source,
                node,
                "a cache is no longer a tuple of tuples: TypeError, it is not subscriptable",
                _NO_TUPLE,
                "use cache.get_seq_length(), and what cache.update() returns",
            )


def _layers(project: Project) -> Iterator[Problem]:
    """Find ``past_key_values[i]``, the pair of a layer, in models that generate."""
    for source in {entry.source for entry in project.models if _generates(project, entry)}:
        pairs = {id(n.value) for n in source.by_kind.get(ast.Subscript, ())}
        for node in source.by_kind.get(ast.Subscript, ()):
            if id(node) in pairs or not isinstance(node.ctx, ast.Load):
                continue
            if not is_name(node.value, "past_key_values") or not isinstance(node.slice, ast.Name):
                continue
            function = source.function(node)
            if function is None or _converts(function) or _knows_tuples(source, node):
                continue
            yield problem(
                source,
                node,
                "a cache is no longer a tuple with a pair for each layer: TypeError, it is not subscriptable",
                _NO_TUPLE,
                "pass the whole cache to the layer, and use what cache.update() returns",
            )


def _converts(function: Function) -> bool:
    """Return True if a function makes the tuple itself, from a cache or for a model that keeps tuples."""
    return any(not is_constant(value, None) for value in assigned(function, "past_key_values"))


def _positions(project: Project) -> Iterator[Problem]:
    """Find an element of ``cache_position`` that is read in an own preparation of inputs without a test for None."""
    for entry in project.models:
        method = entry.method(_PREPARE)
        if method is None or _NO_POSITIONS not in argument_names(method):
            continue
        if assigned(method, _NO_POSITIONS) or any(_is_tested(n) for n in ast.walk(method)):
            continue
        for node in inside(method, ast.Subscript):
            if is_name(node.value, _NO_POSITIONS) and not guarded(entry.source, node):
                yield problem(
                    entry.source,
                    node,
                    "generate() no longer passes cache_position, which is None here: TypeError",
                    since("5.4"),
                    "tell the first step by past_key_values.get_seq_length() == 0",
                )


def _counted(project: Project) -> Iterator[Problem]:
    """Find ``model_kwargs["cache_position"]``, read between two steps without a look whether it is there."""
    for entry in project.models:
        method = entry.method(_UPDATE)
        if method is None:
            continue
        keys = [n for n in ast.walk(method) if isinstance(n, ast.Subscript) and _is_key(n.slice)]
        read = next((key for key in keys if isinstance(key.ctx, ast.Load)), None)
        # any other mention may be a test, a default, or what writes it first
        if read is None or len(keys) != sum(map(_is_key, entry.source.nodes)):
            continue
        if guarded(entry.source, read):
            continue
        yield problem(
            entry.source,
            read,
            "generate() no longer counts cache_position: KeyError",
            since("5.4"),
            'write if "cache_position" in model_kwargs: above it',
        )


def _is_key(node: ast.AST) -> bool:
    return is_constant(node, _NO_POSITIONS)


def _is_tested(node: ast.AST) -> bool:
    """Return True for a comparison of the positions with None, or their truth."""
    if isinstance(node, ast.Compare):
        return is_name(node.left, _NO_POSITIONS) and _asks_for_none(node)
    return isinstance(node, (ast.If, ast.IfExp)) and is_name(node.test, _NO_POSITIONS)


def _knows_tuples(source: Source, node: ast.Subscript) -> bool:
    """Return True if code asks for the release, or its function tells tuples from caches or gets tuples or None alone."""
    function = source.function(node)
    is_of_tuples = function is not None and (
        function.name == "_reorder_cache" or _sorts(function) or _has_own_pairs(function)
    )
    is_none = is_asserted_none(source, node, "past_key_values")
    return is_of_tuples or is_none or guarded(source, node)


_OF_GENERATE = ("forward", "prepare_inputs_for_generation")
"""Methods that generate() hands its cache, whatever their annotations say."""
_PAIRS = re.compile(r"(?:list|tuple)\[tuple\b", re.IGNORECASE)


def _has_own_pairs(function: Function) -> bool:
    """Return True for a method of the model's own that makes pairs of tensors, or that takes them by its annotation."""
    name = "past_key_values"
    if function.name in _OF_GENERATE:
        return False
    if any(isinstance(value, (ast.List, ast.ListComp)) for value in assigned(function, name)):
        return True
    arguments = (*function.args.args, *function.args.kwonlyargs)
    taken = (a.annotation for a in arguments if a.arg == name and a.annotation is not None)
    return any(_PAIRS.search(ast.unparse(annotation)) for annotation in taken)


def _sorts(function: ast.AST) -> bool:
    """Return True if a function tells tuples from caches itself."""
    return any(
        is_name(n.func, "isinstance") and mentions(n, "past_key_values")
        for n in inside(function, ast.Call)
    )


def _in_models(project: Project, source: Source) -> bool:
    return any(entry.source is source for entry in project.models)


def _crops(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        owner, name = method_call(node)
        if name != "crop" or owner is None or receiver(owner) not in _NAMES:
            continue
        if len(node.args) != 1 or node.keywords or guarded(source, node):
            continue
        if _negative(source, node.args[0]):
            continue
        yield problem(
            source,
            node,
            "crop() refuses the number of tokens to keep: ValueError",
            since("5.20"),
            "pass the number of tokens to remove, as a negative number, if there are any",
        )


def _negative(source: Source, node: ast.expr) -> bool:
    """Return True for a number that is negative, or that may be."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return mentions(node.right, "get_seq_length")
    function = source.function(node)
    if not isinstance(node, ast.Name) or function is None:
        return False
    values = assigned(function, node.id)
    return bool(values) and all(isinstance(v, ast.UnaryOp) for v in values)


def _truth(project: Project) -> Iterator[Problem]:
    for source in project.sources:
        if not _in_models(project, source):
            continue
        for node in source.nodes:
            if not isinstance(node, (ast.If, ast.IfExp, ast.While)):
                continue
            for tested in _tested(node.test):
                if not isinstance(tested, ast.Name) or tested.id not in _SURE:
                    continue
                if _only_makes_one(node, tested.id) or _iterated(source, tested):
                    continue
                if guarded(source, node) or is_asserted_none(source, tested, tested.id):
                    continue
                yield problem(
                    source,
                    tested,
                    f"an empty cache counts as true, so `if {tested.id}` takes the prompt for a "
                    "continuation",
                    _MADE_OF_CONFIG,
                    f"write {tested.id} is not None and {tested.id}.get_seq_length() > 0",
                )


def _embeddings(project: Project) -> Iterator[Problem]:
    """Find embeddings that an own preparation of inputs takes beside no cache alone, where generate() makes an empty one."""
    for entry in project.models:
        method = entry.method(_PREPARE)
        if method is None or guarded(entry.source, method):
            continue
        for test in inside(method, ast.BoolOp):
            asked = {
                (ast.unparse(value.left), type(value.ops[0]))
                for value in test.values
                if isinstance(value, ast.Compare) and _asks_for_none(value)
            }
            cache = next((name for name in sorted(_NAMES) if (name, ast.Is) in asked), None)
            if cache is None or ("inputs_embeds", ast.IsNot) not in asked:
                continue
            if not isinstance(test.op, ast.And) or any(map(_may_be_none, assigned(method, cache))):
                continue
            yield problem(
                entry.source,
                test,
                "generate() passes an empty cache with the first step, so inputs_embeds is passed over: "
                "an exception, as there are no token ids",
                _NEVER_NONE,
                f"ask for its tokens: {cache} is None or {cache}.get_seq_length() == 0",
            )


def _may_be_none(value: ast.expr) -> bool:
    """Return True for ``None``, and for a choice that has it."""
    parts = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
    return any(is_constant(part, None) for part in parts)


_NEVER_NONE = union(
    between("4.54", "4.57"), since("5.1"), note="to 4.53, too, with _supports_cache_class = True"
)
"""Releases whose generate() passes a cache with the first step, too."""


def _tested(test: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of a test that decide it for an empty cache.

    In ``past_key_values and is_updated`` the second part decides, too, so nothing is certain. It is
    certain beside ``input_ids is not None``, which is true for a prompt and for a continuation.
    """
    if isinstance(test, ast.BoolOp):
        certain = isinstance(test.op, ast.Or) or all(
            _asks_for_none(value) or is_name(value, *_SURE) for value in test.values
        )
        for value in test.values:
            if certain or not isinstance(value, ast.Name):
                yield from _tested(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _tested(test.operand)
    else:
        yield test


def _asks_for_none(node: ast.expr) -> bool:
    """Return True for ``x is None`` and ``x is not None``."""
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot))


def _iterated(source: Source, node: ast.Name) -> bool:
    """Return True if the function iterates over the name, which then is a tuple of its own."""
    function = source.function(node)
    return function is not None and any(
        isinstance(n, (ast.For, ast.comprehension)) and ast.unparse(n.iter) == node.id
        for n in ast.walk(function)
    )


def _only_makes_one(node: ast.If | ast.IfExp | ast.While, name: str) -> bool:
    """Return True for ``if not past_key_values: past_key_values = …``, and for what it leaves alone."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    return all(
        isinstance(line, ast.Assign) and any(ast.unparse(t) == name for t in line.targets)
        for line in node.body
    )


def _keyword(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        names = {k.arg for k in node.keywords} & _SURE
        if len(names) != 1 or guarded(source, node):
            continue
        name = names.pop() or ""
        layer = library_class(project, source, node.func)
        releases = layer_releases(layer, name, holds=False)
        if releases is None:
            continue
        yield problem(
            source,
            next(k for k in node.keywords if k.arg == name),
            f"this layer of the library ignores {name}=, so its cache stays empty",
            releases,
            "pass it under the name in inspect.signature(…Layer.forward)",
        )


_OLD_NAMES = {"past_key_values", "cache_params"}
_PREPARE = "prepare_inputs_for_generation"
_HEADS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


def _renamed(project: Project) -> Iterator[Problem]:
    for entry in project.models:
        if not _generates(project, entry):
            continue
        for method in (m for m in map(entry.method, ("forward", _PREPARE)) if m is not None):
            named = argument_names(method)
            old = named & _OLD_NAMES
            if not old or "cache" in named:
                continue
            # a text "cache" is a look into **kwargs, or the decorator that renames it
            if any(is_constant(n, "cache") for n in ast.walk(method)):
                continue
            yield problem(
                entry.source,
                method,
                f"generate() passes the cache as cache=, and {method.name}() only takes {min(old)}=",
                since("5.24"),
                "take both names: cache=None, and past_key_values = cache if that is None",
            )


def _renamed_fields(project: Project) -> Iterator[Problem]:
    for entry in project.classes:
        fields = {
            n.target.id
            for n in entry.node.body
            if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
        }
        old = fields & _OLD_NAMES
        bases = project.family(entry).names_outside
        if not old or "cache" in fields or "ModelOutput" not in bases:
            continue
        yield problem(
            entry.source,
            entry.node,
            f"ModelOutput changes the keyword {min(old)}= to cache=, and {entry.name} has no such field",
            since("5.24"),
            "return a class of transformers.modeling_outputs, or name the field by the release",
        )


def _uncounted(project: Project) -> Iterator[Problem]:
    """Find a config class from which generate() cannot make a cache, as nothing says how many layers it gets."""
    named: dict[int, Class] = {}
    for entry in project.models:
        forward, family = entry.method("forward"), project.family(entry).own
        if forward is None or not _generates(project, entry) or project.is_part(entry):
            continue
        own = any(mentions(c.node, name) for c in family for name in _WITHOUT_CACHE)
        if own or not argument_names(forward) & _OLD_NAMES:
            continue
        declared = [(c.source, v) for c in family if (v := c.attribute("config_class")) is not None]
        config = project.resolve(*declared[0]) if declared else None
        if config is not None and _counts_no_layers(project, config):
            named[id(config.node)] = config
    for config in named.values():
        yield problem(
            config.source,
            config.node,
            f"{config.name} has no num_hidden_layers, from which generate() makes its cache: AttributeError",
            _MADE_OF_CONFIG,
            f'say which field has it: attribute_map = {{"num_hidden_layers": "{_count_of_layers(config)}"}}',
        )


def _windowed(project: Project) -> Iterator[Problem]:
    """Find own attention whose own masks count all tokens, where the config has the window that generate() keeps."""
    seen: set[int] = set()
    for entry in project.models:
        window = _window(project.checkpoint(entry.source) or {})
        sources = {c.source.path: c.source for c in project.family(entry).own}
        text = "\n".join(source.text for source in sources.values())
        if (
            window is None
            or not _OWN_MASKS.search(text)
            or any(name in text for name in _ASK_CACHE)
        ):
            continue
        if not _generates(project, entry) or not project.only_base_model(entry, of_models=True):
            continue
        update = next((u for _, source in sorted(sources.items()) for u in _updates(source)), None)
        if update is None or id(update[1]) in seen:
            continue
        seen.add(id(update[1]))
        yield problem(
            *update,
            f"generate() makes a cache that keeps {window[1]} tokens of a layer ({window[0]}), and masks that "
            "count all tokens do not fit its keys: an exception, or wrong numbers, once a text is longer",
            _MADE_OF_CONFIG,
            "pass past_key_values=DynamicCache() to generate(), or make the masks with masking_utils",
        )


_OWN_MASKS = re.compile(r"causal_mask|causal_attention_mask|\btri[lu]\(|\bfinfo\(")
_ASK_CACHE = ("masking_utils", "get_mask_sizes")
_MADE_OF_CONFIG = union(between("4.56", "4.57"), since("5.1"))
"""Releases whose generate() makes its cache of the config, with layers that keep a window."""


def _window(config: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the field of config.json from which a cache takes its window, and its value; None for none."""
    if config.get("use_sliding_window") is False:  # config classes then leave it out
        return None
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and not any(
        "sliding" in str(kind) or "chunked" in str(kind) for kind in kinds
    ):
        return None
    fields = ((name, config.get(name)) for name in ("sliding_window", "attention_chunk_size"))
    return next(((name, n) for name, n in fields if isinstance(n, int) and n), None)


def _updates(source: Source) -> Iterator[tuple[Source, ast.Call]]:
    """Yield each ``past_key_value.update(keys, values, …)`` of own attention."""
    for node in source.by_kind.get(ast.Call, ()):
        owner, name = method_call(node)
        if (
            name == "update"
            and owner is not None
            and receiver(owner) in _NAMES
            and len(node.args) > 1
        ):
            yield source, node


_WITHOUT_CACHE = ("_is_stateful", "_supports_default_dynamic_cache")
_LAYERS = "num_hidden_layers"


def _counts_no_layers(project: Project, config: Class) -> bool:
    """Return True if neither a config class nor config.json has the number of layers; it is no config of parts."""
    classes, outside = project.family(config)
    if not outside or not all(map(is_base_config, outside)):
        return False
    if _LAYERS in (project.checkpoint(config.source) or {}):
        return False
    attributes = {n.attr for c in classes for n in ast.walk(c.node) if isinstance(n, ast.Attribute)}
    has_parts = any(name.endswith("_config") for name in attributes)
    return not has_parts and not any(mentions(c.node, _LAYERS) for c in classes)


def _count_of_layers(config: Class) -> str:
    """Return the field of a config class that its name says to be the number of layers, or the usual one."""
    named = {n.attr for n in ast.walk(config.node) if isinstance(n, ast.Attribute)}
    return next((name for name in _COUNTS if name in named), _COUNTS[0])


_COUNTS = ("num_layers", "n_layers", "n_layer", "n_blocks", "depth")


def _generates(project: Project, entry: Class) -> bool:
    """Return True for a class that generates, by its name, its bases or a method of its own."""
    family = project.family(entry)
    if family.method(_PREPARE) is not None:
        return True
    names = {entry.name} | family.outside
    return any(name.endswith((*_HEADS, "GenerationMixin")) for name in names)


def _unknown_positions(project: Project) -> Iterator[Problem]:
    """Find a forward to which the library's preparation of inputs passes positions that it does not take."""
    for entry in project.models:
        family = project.family(entry)
        prepares = any(map(family.method, (_PREPARE, "generate")))
        forward = family.method("forward")
        if prepares or forward is None or not project.has_generation(entry):
            continue
        is_known = project.only_base_model(entry, of_models=True)
        takes = forward.args.kwarg is not None or _NO_POSITIONS in argument_names(forward)
        if is_known and not takes and not forward.decorator_list:
            source = next(c for c in family.own if c.method("forward") is forward).source
            yield problem(
                source,
                forward,
                "generate() passes cache_position, which this forward does not take: TypeError",
                between("4.54", "5.3"),
                "let forward take **kwargs",
            )


_REORDER = "_reorder_cache"
_REORDERED = since("5.0", note="4.54 to 4.57 where its forward takes no tuple")


def _reorderings(project: Project) -> Iterator[Problem]:
    """Find a ``_reorder_cache`` that iterates over what may be a cache of the library."""
    for entry in project.models:
        method = entry.method(_REORDER)
        taken = _looped_over(method) if method is not None else ""
        releases = _handed_a_cache(project, entry) if taken else None
        if method is None or releases is None or guarded(entry.source, method):
            continue
        yield problem(
            entry.source,
            method,
            "beam search hands over a cache, whose layers are no pairs of tensors",
            releases,
            f"let a cache reorder itself: {taken}.reorder_cache(beam_idx)",
            _reordering_edits(entry.source, method, taken),
        )


def _looped_over(method: Function) -> str:
    """Return the argument over whose items a method iterates without a question about its type; '' if none."""
    if any(isinstance(n, ast.Attribute) and n.attr == "reorder_cache" for n in ast.walk(method)):
        return ""
    if any(is_name(call.func, "isinstance", "hasattr") for call in inside(method, ast.Call)):
        return ""
    names = argument_names(method)
    loops = (n for n in ast.walk(method) if isinstance(n, (ast.For, ast.comprehension)))
    over = (n.id for loop in loops for n in inside(loop.iter, ast.Name))
    return next((name for name in over if name in names), "")


def _handed_a_cache(project: Project, entry: Class) -> Releases | None:
    """Return the releases whose beam search has a cache for a class; None if its forward returns tuples alone."""
    subclasses = [entry, *project.subclasses(entry)]
    families = [project.family(each) for each in subclasses]
    own = [c for classes, _ in families for c in classes if c.method("forward") is not None]
    if not own:
        is_of_head = any(name.endswith(_HEADS) for _, outside in families for name in outside)
        return since("4.54") if is_of_head else None
    knows = any(mentions(c.source.tree, "DynamicCache") for c in own)
    return _REORDERED if knows else None


def _reordering_edits(source: Source, method: Function, taken: str) -> list[Edit]:
    """Return the lines that let a cache reorder itself, above the first statement of the method."""
    statement = next((s for s in method.body if not _is_text(s)), None)
    others = [a.arg for a in method.args.args if a.arg not in {"self", "cls", taken}]
    if statement is None or not others or not source.own_lines(statement):
        return []
    start = source.span(statement)[0]
    indent = source.text[source.line_start(statement.lineno) : start]
    lines = (
        f'if hasattr({taken}, "reorder_cache"):',
        f"    {taken}.reorder_cache({others[0]})",
        f"    return {taken}",
        "",
    )
    return [Edit(start, start, (source.newline + indent).join(lines))]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


RULES = (
    LintRule("SB701", "error", _attributes),
    LintRule("SB702", "error", _subscripts),
    LintRule("SB702", "error", _layers),
    LintRule("SB707", "error", _crops),
    LintRule("SB708", "warning", _truth),
    LintRule("SB709", "warning", _keyword),
    LintRule("SB713", "error", _renamed),
    LintRule("SB713", "error", _renamed_fields),
    LintRule("SB715", "error", _positions),
    LintRule("SB715", "error", _counted),
    LintRule("SB721", "error", _unknown_positions),
    LintRule("SB723", "error", _uncounted),
    LintRule("SB724", "error", _reorderings),
    LintRule("SB725", "error", _windowed),
    LintRule("SB729", "error", _embeddings),
)
