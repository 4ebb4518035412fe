"""Lines of a model's remote code that are known to behave differently in another release.

A single line proves nothing: a rule reports it only together with a difference that it explains.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple, TypeGuard

OLD_CACHES = frozenset({"past_key_values", "cache_params"})
"""What generate() called the cache through 5.23; from 5.24 on it is ``cache``."""
TRUTH_OF_CACHE = "truth of a cache"
_BESIDE_NO_CACHE = "embeddings beside no cache"
_DROPPED = "keywords of generate() dropped"
_PREPARE = "prepare_inputs_for_generation"
_CACHES = frozenset({"past_key_values", "past_key_value", "cache", "past"})
_LAYERS = frozenset({"layer", "decoder_layer", "block", "layer_module", "encoder_layer"})
_ROPE_FIELDS = frozenset({"rope_theta", "rope_scaling"})
_HEADS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
_LOGITS = frozenset({"num_logits_to_keep", "logits_to_keep"})


class Idiom(NamedTuple):
    """One line of the model's remote code."""

    name: str
    line: int
    code: str


def idioms(tree: ast.AST) -> Iterator[Idiom]:
    """Yield the idioms in a syntax tree."""
    has_layers = any(map(_names_models, ast.walk(tree)))
    for node in ast.walk(tree):
        for name in _idiom_names(node):
            if name == "past_key_value keyword" and not has_layers:
                continue  # it calls layers of its own, which know this name
            assert isinstance(node, (ast.expr, ast.stmt))
            yield Idiom(name, node.lineno, ast.unparse(_shown_part(node)).partition("\n")[0][:200])


def _names_models(node: ast.AST) -> bool:
    """Return True for an import of, or a path to, the classes of an architecture of transformers."""
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith("transformers.models")
    is_path = isinstance(node, ast.Attribute) and node.attr == "models"
    return is_path and ast.unparse(node) == "transformers.models"


def renamed_caches(tree: ast.AST) -> Iterator[Idiom]:
    """Yield the methods that generate() calls and that know its cache by an old name alone.

    They are suspicious in a release whose generate() passes ``cache``: from 5.24 on.
    """
    for node in ast.walk(tree):
        methods = _methods(node) if isinstance(node, ast.ClassDef) else {}
        if not isinstance(node, ast.ClassDef) or not _generates(node, methods):
            continue
        for method in (methods[name] for name in ("forward", _PREPARE) if name in methods):
            named = {a.arg for a in (*method.args.args, *method.args.kwonlyargs)}
            texts = {n.value for n in ast.walk(method) if isinstance(n, ast.Constant)}
            # a text "cache" is a look into **kwargs, or the decorator that renames it
            if named & OLD_CACHES and "cache" not in named | texts:
                code = f"def {method.name}({ast.unparse(method.args)})"[:200]
                yield Idiom("old name of the cache", method.lineno, code)


def of_preparation(tree: ast.AST) -> Iterator[Idiom]:
    """Yield what the model's own preparation of inputs for generate() passes over.

    Embeddings are passed over beside an empty cache, and keywords where no line passes them on.
    """
    for node in ast.walk(tree):
        method = _methods(node).get(_PREPARE) if isinstance(node, ast.ClassDef) else None
        if method is None:
            continue
        for test in filter(_needs_no_cache, ast.walk(method)):
            yield Idiom(_BESIDE_NO_CACHE, test.lineno, ast.unparse(test)[:200])
        if _drops_keywords(method):
            code = f"def {method.name}({ast.unparse(method.args)})"[:200]
            yield Idiom(_DROPPED, method.lineno, code)


def _needs_no_cache(node: ast.AST) -> TypeGuard[ast.BoolOp]:
    """Return True for ``inputs_embeds is not None and past_key_values is None``."""
    if not isinstance(node, ast.BoolOp) or not isinstance(node.op, ast.And):
        return False
    parts = {ast.unparse(value) for value in node.values}
    return "inputs_embeds is not None" in parts and any(f"{c} is None" in parts for c in _CACHES)


def _drops_keywords(method: ast.FunctionDef) -> bool:
    """Return True if a method takes any keyword, and only looks some of them up by their names."""
    if method.args.kwarg is None:
        return False
    name = method.args.kwarg.arg
    looked_up = 0
    for node in ast.walk(method):
        if isinstance(node, ast.Subscript) or (
            isinstance(node, ast.Attribute) and node.attr in {"get", "pop"}
        ):
            looked_up += _is_name(node.value, name)
        elif isinstance(node, ast.Compare):
            looked_up += sum(_is_name(operand, name) for operand in node.comparators)
        elif isinstance(node, ast.Constant) and node.value == "output_hidden_states":
            return False
    return looked_up == sum(_is_name(node, name) for node in ast.walk(method))


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


def _generates(node: ast.ClassDef, methods: dict[str, ast.FunctionDef]) -> bool:
    """Return True if a class says that it generates: by its base, its method or its name."""
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return "GenerationMixin" in bases or _PREPARE in methods or node.name.endswith(_HEADS)


def _idiom_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        tests = list(_tested_expressions(node.test))
        if any(isinstance(t, ast.Name) and t.id in _CACHES for t in tests):
            yield TRUTH_OF_CACHE
        if any(_tests_values(t) for t in tests):
            yield "truth of a buffer's values"
    elif isinstance(node, ast.Subscript):
        is_first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
        if is_first and isinstance(node.value, ast.Call) and _is_layer(node.value.func):
            yield "first of a layer's output"
    elif isinstance(node, ast.Call):
        keywords = {keyword.arg for keyword in node.keywords}
        if "past_key_value" in keywords:
            yield "past_key_value keyword"
        if keywords & _LOGITS:
            yield "logits_to_keep keyword"
        if _is_getattr_with_default(node):
            yield "default for a rope field"


def _tested_expressions(test: ast.expr) -> Iterator[ast.expr]:
    """Yield the expressions whose truth value decides, inside ``and``, ``or`` and ``not``."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _tested_expressions(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _tested_expressions(test.operand)
    else:
        yield test


def _tests_values(test: ast.expr) -> bool:
    """Return True for ``self.x.any()`` and ``self.x.all()``, also as the left of a comparison."""
    call = test.left if isinstance(test, ast.Compare) else test
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in {"any", "all"}
        and ast.unparse(call.func).startswith("self.")
    )


def _is_layer(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else None
    name = function.id if isinstance(function, ast.Name) else name
    return name in _LAYERS


def _is_getattr_with_default(call: ast.Call) -> bool:
    if not (isinstance(call.func, ast.Name) and call.func.id == "getattr" and len(call.args) == 3):
        return False
    name = call.args[1]
    return isinstance(name, ast.Constant) and name.value in _ROPE_FIELDS


def _shown_part(node: ast.expr | ast.stmt) -> ast.AST:
    """Return the part of a node to show: of a branch only its test."""
    return node.test if isinstance(node, (ast.If, ast.IfExp, ast.While)) else node
