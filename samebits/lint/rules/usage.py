"""SB9xx: what callers ask of a model: generation, saving, training."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from samebits.lint.guards import guarded
from samebits.lint.problem import LintRule, Problem
from samebits.lint.project import Class, Project, problem
from samebits.lint.releases import between, since
from samebits.lint.source import Source
from samebits.lint.syntax import assigned, is_constant, is_self, is_super, keyword, method_call


def _calls(project: Project, method: str) -> Iterator[tuple[Source, ast.Call, set[str | None]]]:
    """Yield the unguarded calls of a method in files that use transformers, with their keywords."""
    for source, node in project.nodes(ast.Call):
        if method_call(node)[1] != method or "transformers" not in source.text:
            continue
        if not guarded(source, node):
            yield source, node, {k.arg for k in node.keywords}


def _assisted(project: Project) -> Iterator[Problem]:
    for source, node, names in _calls(project, "generate"):
        if not {"assistant_model", "min_new_tokens"} <= names or _is_none(node, "min_new_tokens"):
            continue
        if _is_none(node, "assistant_model"):
            continue
        yield problem(
            source,
            node,
            "generate() with assistant_model and min_new_tokens raises ValueError",
            between("4.57", "5.2"),
            "leave out one of the two",
        )


def _strategies(project: Project) -> Iterator[Problem]:
    for source, node, names in _calls(project, "generate"):
        if "trust_remote_code" in names:
            continue
        groups = keyword(node, "num_beam_groups")
        contrastive = {"penalty_alpha", "top_k"} <= names and not _is_none(node, "penalty_alpha")
        grouped = groups is not None and not any(
            is_constant(groups.value, value) for value in (None, 1)
        )
        if contrastive or grouped:
            yield problem(
                source,
                node,
                "this strategy of generate() needs code from the hub: ValueError without "
                "trust_remote_code=True",
                since("4.57"),
                "use num_beams or sampling, or pass trust_remote_code=True",
            )


def _is_none(call: ast.Call, name: str) -> bool:
    argument = keyword(call, name)
    return argument is not None and is_constant(argument.value, None)


def _pickle(project: Project) -> Iterator[Problem]:
    for source, node, _ in _calls(project, "save_pretrained"):
        argument = keyword(node, "safe_serialization")
        if argument is None or not is_constant(argument.value, False):
            continue
        if _is_model(project, source, node):
            yield problem(
                source,
                argument,
                "save_pretrained() ignores safe_serialization=False and writes safetensors",
                since("5.0"),
                "write a pickle yourself: torch.save(model.state_dict(), path)",
            )


def _is_model(project: Project, source: Source, call: ast.Call) -> bool:
    """Return True for ``self`` and ``super()`` in a model, and for what an auto class loaded."""
    node, _ = method_call(call)
    assert node is not None
    owner = source.class_of(call)
    if is_super(node) or is_self(node):
        return owner is not None and project.is_model(Class(source, owner))
    values = assigned(source.function(call) or source.tree, ast.unparse(node))
    return bool(values) and all(_loads_by_auto_class(source, value) for value in values)


def _loads_by_auto_class(source: Source, value: ast.expr) -> bool:
    auto, name = method_call(value)
    of_library = source.from_library(auto).rpartition(".")[2]
    return name == "from_pretrained" and of_library.startswith("AutoModel")


def _checkpointing(project: Project) -> Iterator[Problem]:
    for source, node, _ in _calls(project, "gradient_checkpointing_enable"):
        if node.args or node.keywords:
            continue
        if any(c.method("gradient_checkpointing_enable") for c in project.classes):
            continue
        yield problem(
            source,
            node,
            "gradient_checkpointing_enable() without arguments sets use_reentrant=True up to 4.57 and "
            "False from 5.0 on",
            since("5.0"),
            'pass {"use_reentrant": False}, or True for what 4.57 does',
        )


RULES = (
    LintRule("SB907", "error", _assisted),
    LintRule("SB908", "error", _strategies),
    LintRule("SB909", "warning", _pickle),
    LintRule("SB911", "note", _checkpointing),
)
