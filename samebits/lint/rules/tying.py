"""SB4xx: input and output embeddings that share memory, or should."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from samebits.lint.problem import Edit, LintRule, Problem
from samebits.lint.project import Class, Project, problem
from samebits.lint.releases import since
from samebits.lint.syntax import Function, argument_names, inside, is_super, method_call


def _list_of_keys(project: Project) -> Iterator[Problem]:
    for entry in project.models:
        value = entry.attribute("_tied_weights_keys")
        if not isinstance(value, (ast.List, ast.Tuple, ast.Set)) or not value.elts:
            continue
        tied = _tie(project, entry)
        names = [e.value for e in value.elts if isinstance(e, ast.Constant)]
        edits = []
        if tied is not None and names == [tied[0]]:
            edits = [Edit(*entry.source.span(value), f'{{"{tied[0]}": "{tied[1]}"}}')]
        yield problem(
            entry.source,
            value,
            "_tied_weights_keys is a list: AttributeError when the model is loaded or saved",
            since("5.0"),
            'write a dict {tied: source}, such as {"lm_head.weight": "model.embed_tokens.weight"}; '
            "4.x accepts it",
            edits,
        )


def _tie(project: Project, entry: Class) -> tuple[str, str] | None:
    """Return the names of the head's and the embeddings' weight, if the code shows both."""
    head = _returned(project, entry, "get_output_embeddings")
    table = _returned(project, entry, "get_input_embeddings")
    return (f"{head}.weight", f"{table}.weight") if head and table else None


def _returned(project: Project, entry: Class, method: str) -> str | None:
    """Return ``model.embed_tokens`` for a method that only returns ``self.model.embed_tokens``."""
    function = project.family(entry).method(method)
    body = [n for n in function.body if not _is_docstring(n)] if function is not None else []
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return None
    owner, _, path = ast.unparse(body[0].value).partition(".")
    return path if owner == "self" and path.replace(".", "").isidentifier() else None


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _no_post_init(project: Project) -> Iterator[Problem]:
    for entry in project.loaded:
        if not project.only_base_model(entry, of_models=True) or project.subclasses(entry):
            continue
        family = project.family(entry)
        init = family.method("__init__")
        if init is None or any(_calls(c, "post_init") for c in family.own):
            continue
        if "PreTrained" in entry.name or project.is_part(entry):
            continue
        attributes = inside(init, ast.Attribute)
        if not any(is_super(n.value) and n.attr == "__init__" for n in attributes):
            continue
        where = entry.method("__init__")
        yield problem(
            entry.source,
            where.body[0] if where is not None else entry.node.bases[0],
            f"{entry.name}.__init__ does not call self.post_init(): AttributeError "
            "(all_tied_weights_keys) while the model loads",
            since("5.0"),
            "call self.post_init() at the end of __init__",
        )


def _calls(entry: Class, name: str) -> bool:
    """Return True if any method of the class calls ``self.name()``, or defines it."""
    attributes = inside(entry.node, ast.Attribute)
    return entry.method(name) is not None or any(a.attr == name for a in attributes)


def _signature(project: Project) -> Iterator[Problem]:
    for entry in project.models:
        function = entry.method("tie_weights")
        if function is None or function.args.kwarg is not None:
            continue
        if entry not in project.loaded and not _finishes(project, entry):
            continue
        names = argument_names(function)
        if {"missing_keys", "recompute_mapping"} <= names:
            continue
        yield problem(
            entry.source,
            function.body[0],
            "tie_weights() does not accept missing_keys and recompute_mapping: TypeError while the "
            "model loads",
            since("5.0"),
            "write def tie_weights(self, *args, **kwargs), and pass both on to super()",
            _signature_edits(entry, function),
        )


def _finishes(project: Project, entry: Class) -> bool:
    """Return True if ``__init__`` calls what ties the weights of a model that is made."""
    return any(
        _calls(each, name)
        for each in project.family(entry).own
        for name in ("post_init", "init_weights")
    )


def _signature_edits(entry: Class, function: Function) -> list[Edit]:
    """Return the edits for ``def tie_weights(self)``; none for any other signature."""
    arguments = function.args
    if (
        len(arguments.args) != 1
        or arguments.vararg
        or arguments.kwonlyargs
        or arguments.posonlyargs
    ):
        return []
    end = entry.source.span(arguments.args[0])[1]
    edits = [Edit(end, end, ", *args, **kwargs")]
    for node in inside(function, ast.Call):
        owner, name = method_call(node)
        if name == "tie_weights" and owner is not None and is_super(owner):
            if node.args or node.keywords:
                return []
            stop = entry.source.span(node)[1]
            edits.append(Edit(stop - 1, stop - 1, "*args, **kwargs"))
    return edits


def _untied(project: Project) -> Iterator[Problem]:
    for entry in project.models:
        if not project.only_base_model(entry) or project.subclasses(entry):
            continue
        family = project.family(entry)
        if any(c.attribute("_tied_weights_keys") is not None for c in family.own):
            continue
        if any(map(family.method, ("tie_weights", "_tie_weights"))):
            continue
        head = entry.method("get_output_embeddings")
        if head is None or _returned(project, entry, "get_output_embeddings") is None:
            continue
        if family.method("get_input_embeddings") is None:
            continue
        if not _ties(project, entry):
            continue
        yield problem(
            entry.source,
            head.body[0],
            f"{entry.name} declares no _tied_weights_keys, so its head is not tied to the "
            "embeddings and gets random values",
            since("5.0"),
            'declare _tied_weights_keys = {"head.weight": "embeddings.weight"}, and write '
            "tie_word_embeddings into config.json",
        )


def _ties(project: Project, entry: Class) -> bool:
    """Return True if the config certainly asks for tied embeddings, in 4.x and in 5.x."""
    written = project.checkpoint(entry.source)
    if written is None:
        return False
    if "tie_word_embeddings" in written:
        return written["tie_word_embeddings"] is True
    configs = [c for c in project.configs if c.source.path.parent == entry.source.path.parent]
    return bool(configs) and not any("tie_word_embeddings" in ast.dump(c.node) for c in configs)


RULES = (
    LintRule("SB401", "error", _list_of_keys),
    LintRule("SB402", "error", _no_post_init),
    LintRule("SB403", "error", _signature),
    LintRule("SB404", "warning", _untied),
)
