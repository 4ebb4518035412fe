"""SB6xx: masks, and the library's attention functions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from samebits.lint.guards import guarded
from samebits.lint.problem import LintRule, Problem
from samebits.lint.project import Class, keyword, mentions, problem
from samebits.lint.releases import between, since, union

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.lint.project import Project
    from samebits.lint.source import Source

_MASKS = {
    "create_causal_mask",
    "create_sliding_window_causal_mask",
    "create_chunked_causal_mask",
    "create_bidirectional_mask",
}
_SDPA = "sdpa_attention_forward"


def _longer_mask(project: Project) -> Iterator[Problem]:
    if not any(
        source.from_library(node).endswith((_SDPA, "ALL_ATTENTION_FUNCTIONS"))
        for source in project.sources
        for node in source.nodes
        if isinstance(node, ast.Name)
    ):
        return
    if any(_cuts_to_keys(node) for source in project.sources for node in source.nodes):
        return
    for source in project.sources:
        for node in source.nodes:
            if isinstance(node, ast.Call) and _pads_one_column(source, node):
                yield problem(
                    "SB602",
                    source,
                    node,
                    "the mask gets one column more than there are keys, and the library's attention "
                    "no longer cuts it: RuntimeError about sizes",
                    since("5.0", note="eager attention: 5.2 and later"),
                    "cut it yourself: attention_mask[:, :, :, : key_states.shape[-2]]",
                )


def _cuts_to_keys(node: ast.AST) -> bool:
    """Return True for a last slice of a mask such as ``[..., : key_states.shape[-2]]``."""
    if (
        not isinstance(node, ast.Subscript)
        or not isinstance(node.slice, ast.Tuple)
        or not node.slice.elts
    ):
        return False
    last = node.slice.elts[-1]
    if not isinstance(last, ast.Slice) or last.upper is None:
        return False
    mask, upper = ast.unparse(node.value), ast.unparse(last.upper)
    return ("mask" in mask or "bias" in mask) and ("shape[-2]" in upper or "k" in upper.split("_"))


def _pads_one_column(source: Source, node: ast.Call) -> bool:
    """Return True for ``F.pad(mask, (0, 1), value=torch.finfo(…).min)``."""
    if source.dotted(node.func) != "torch.nn.functional.pad" or len(node.args) < 2:
        return False
    value = keyword(node, "value")
    return (
        ast.unparse(node.args[1]) in {"(0, 1)", "[0, 1]"}
        and value is not None
        and mentions(value.value, "finfo")
    )


def _mask_arguments(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        name = source.from_library(node.func)
        if name.rpartition(".")[2] not in _MASKS or not name.startswith(
            "transformers.masking_utils"
        ):
            continue
        if any(k.arg is None for k in node.keywords) or guarded(source, node):
            continue
        names = {k.arg for k in node.keywords}
        if name.endswith("bidirectional_mask") and not names & {
            "cache_position",
            "input_embeds",
        }:
            continue
        if names & {"cache_position", "input_embeds"} or _old_places(node):
            releases = union(between("4.48", "4.48"), since("5.9"))
        elif "inputs_embeds" in names:
            releases = between("4.48", "5.1")
        else:
            releases = between("4.48", "5.2")
        yield problem(
            "SB603",
            source,
            node,
            f"{name.rpartition('.')[2]}() does not take these arguments in every release: "
            "TypeError",
            releases,
            "pass only the names in inspect.signature: input_embeds or inputs_embeds, and "
            "cache_position where it exists",
        )


def _old_places(call: ast.Call) -> bool:
    """Return True if the fourth argument is ``cache_position``, as up to 5.8."""
    return len(call.args) > 3 and "past" not in ast.unparse(call.args[3])


def _packed_heads(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        name = source.from_library(node.func)
        owner = source.class_of(node)
        if not name.endswith(f".{_SDPA}") or owner is None or not node.args:
            continue
        if ast.unparse(node.args[0]) != "self":
            continue
        family = project.family(Class(source, owner))[0]
        if not any(_has_groups(c) for c in family):
            continue
        yield problem(
            "SB604",
            source,
            node,
            "for one token this function packs the heads of a group into the query, so it "
            "rounds differently",
            since("5.23"),
            "none is needed; for the older bits pass keys and values that are already repeated, "
            "from a module without num_key_value_groups",
        )


def _has_groups(entry: Class) -> bool:
    return any(
        isinstance(n, ast.Attribute)
        and n.attr == "num_key_value_groups"
        and isinstance(n.ctx, ast.Store)
        for n in ast.walk(entry.node)
    )


RULES = (
    LintRule(
        "SB602",
        "a mask one column longer than the keys is no longer cropped",
        "error",
        _longer_mask,
    ),
    LintRule(
        "SB603",
        "`create_causal_mask` takes different arguments in each release",
        "error",
        _mask_arguments,
    ),
    LintRule(
        "SB604", "heads of one decoded token are packed into the query", "note", _packed_heads
    ),
)
