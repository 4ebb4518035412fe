"""SB5xx: rotary embeddings."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from samebits.lint.guards import guarded
from samebits.lint.layers import instance_class
from samebits.lint.problem import Edit, LintRule, Problem
from samebits.lint.project import Class, Project, is_base_config, problem
from samebits.lint.releases import between, since
from samebits.lint.source import Source
from samebits.lint.syntax import (
    Function,
    argument_names,
    is_constant,
    keyword,
    mentions,
    own_attribute,
    stores,
)
from samebits.lint.uses import without

_EMBEDDING = "RotaryEmbedding"
_WITHOUT_KIND = 2
"""Positional arguments of a call without the kind of layer: the hidden states and the positions."""
_KIND = ("layer_type", None)
"""Keywords that may give it; None: ``**kwargs``."""
_TABLE = "transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS"


def _default_key(project: Project) -> Iterator[Problem]:
    for source in project.sources:
        if any(_fills(source, node) for node in source.nodes):
            continue
        for node in source.nodes:
            if not isinstance(node, ast.Subscript) or source.dotted(node.value) != _TABLE:
                continue
            if not isinstance(node.ctx, ast.Load) or guarded(source, node):
                continue
            key = node.slice
            if isinstance(key, ast.Constant) and key.value != "default":
                continue
            if not isinstance(key, ast.Constant) and _asks_for_default(source, node):
                continue
            yield problem(
                source,
                node,
                'ROPE_INIT_FUNCTIONS has no entry "default": KeyError for a model with plain rope',
                since("5.0"),
                "write ROPE_INIT_FUNCTIONS.get(rope_type, default_rope), with a function of your own",
            )


def _fills(source: Source, node: ast.AST) -> bool:
    """Return True for code that adds entries to the table."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return source.dotted(node.value) == _TABLE
    return (
        isinstance(node, ast.Attribute)
        and node.attr in {"setdefault", "update"}
        and source.dotted(node.value) == _TABLE
    )


def _asks_for_default(source: Source, node: ast.AST) -> bool:
    """Return True if a test around the node is about the word "default", or the table's keys."""
    return any(
        isinstance(outer, (ast.If, ast.IfExp))
        and (
            any(is_constant(n, "default") for n in ast.walk(outer.test))
            or mentions(outer.test, "ROPE_INIT_FUNCTIONS")
        )
        for outer in source.ancestors(node)
    )


def _device(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        name = source.from_library(node.func).rpartition(".")[2]
        device = keyword(node, "device")
        config = keyword(node, "config") or (node.args and "config" in ast.unparse(node.args[0]))
        if not name.endswith(_EMBEDDING) or device is None or not config:
            continue
        if guarded(source, node):
            continue
        yield problem(
            source,
            device,
            f"{name} takes only a config: a device fails on the meta device, and then raises "
            "TypeError",
            since("5.0"),
            "pass only the config",
            _without_device(source, node, device),
        )


def _kind_of_layer(project: Project) -> Iterator[Problem]:
    if not any(_EMBEDDING in source.text for source in project.sources):
        return
    for source, node in project.nodes(ast.Call):
        held = instance_class(project, source, node.func).rpartition(".")[2]
        releases = without("rotary", held, "forward") if held else None
        given = (*node.args, *node.keywords)
        if releases is None or guarded(source, node) or len(node.args) > _WITHOUT_KIND:
            continue
        if any(isinstance(a, ast.Starred) or getattr(a, "arg", "") in _KIND for a in given):
            continue
        yield problem(
            source,
            node,
            f"{held} has frequencies for each kind of layer: a call without layer_type raises",
            releases,
            "pass layer_type, such as config.layer_types[layer_idx], to the releases that take it",
        )


def _without_device(source: Source, node: ast.Call, device: ast.keyword) -> list[Edit]:
    """Return the edit that removes a device that is the CPU, as it is without the argument."""
    if not is_constant(device.value, "cpu") and not is_constant(device.value, None):
        return []
    before = [
        a for a in [*node.args, *node.keywords] if source.span(a)[1] <= source.span(device)[0]
    ]
    if not before or device is not node.keywords[-1]:
        return []
    return [Edit(source.span(before[-1])[1], source.span(device)[1], "")]


def _dtype(project: Project) -> Iterator[Problem]:
    """Frequencies that are cast to ``config.dtype``, which older releases do not have."""
    for entry in project.parts:
        source = entry.source
        if not mentions(entry.node, "inv_freq") or mentions(entry.node, "torch_dtype"):
            continue
        for node in ast.walk(entry.node):
            reads = (
                isinstance(node, ast.Attribute)
                and node.attr == "dtype"
                and isinstance(node.ctx, ast.Load)
                and ast.unparse(node.value) in {"config", "self.config"}
            )
            asks = (
                isinstance(node, ast.Call)
                and source.dotted(node.func) == "getattr"
                and len(node.args) > 1
                and ast.unparse(node.args[0]) in {"config", "self.config"}
                and is_constant(node.args[1], "dtype")
            )
            method = source.function(node)
            if not (reads or asks) or method is None or method.name == "forward":
                continue
            yield problem(
                source,
                node,
                "config.dtype does not exist in older releases, so the frequencies get a different dtype",
                between("4.48", "4.55"),
                "keep the frequencies in float32, and cast cos and sin",
            )


def _lost_base(project: Project) -> Iterator[Problem]:
    """Find a config class that keeps ``rope_theta`` for itself, where a rotary class of the library reads it."""
    if not any(
        source.from_library(node.func).endswith(_EMBEDDING)
        for source, node in project.nodes(ast.Call)
    ):
        return
    for entry in project.configs:
        init, source, call = entry.method("__init__"), entry.source, entry.base_init()
        if init is None or call is None or "rope_theta" not in argument_names(init):
            continue
        if not (call.args or call.keywords) or not _fills_parameters(entry, init, call):
            continue
        if keyword(call, "rope_theta") or guarded(source, call):
            continue
        if not all(map(is_base_config, project.family(entry).outside)):
            continue
        start = source.span(call.args[0] if call.args else call.keywords[0])[0]
        yield problem(
            source,
            call,
            "this passes no rope_theta on, so the base of rope_parameters is 10000",
            between("5.0", "5.1"),
            "pass rope_theta=rope_theta",
            [] if call.args else [Edit(start, start, "rope_theta=rope_theta, ")],
        )


def _fills_parameters(entry: Class, init: Function, call: ast.Call) -> bool:
    """Return True if the base's ``__init__`` makes rope_parameters of what the class has set before as rope_scaling."""
    return not mentions(entry.node, "rope_parameters") and any(
        own_attribute(node) == "rope_scaling" and node.lineno < call.lineno for node in stores(init)
    )


RULES = (
    LintRule("SB501", "error", _default_key),
    LintRule("SB502", "error", _device),
    LintRule("SB502", "error", _kind_of_layer),
    LintRule("SB504", "note", _dtype),
    LintRule("SB508", "warning", _lost_base),
)
