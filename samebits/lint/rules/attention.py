"""SB6xx: masks, and the library's attention functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from inspect import Parameter, Signature

from samebits.lint.guards import guarded
from samebits.lint.problem import LintRule, Problem
from samebits.lint.project import Class, Project, problem
from samebits.lint.releases import Releases, between, joined, since
from samebits.lint.source import Source
from samebits.lint.syntax import inside, is_self, keyword, mentions, own_attribute, stores

_WHERE = "transformers.masking_utils."
_MASKS = {
    "create_causal_mask",
    "create_sliding_window_causal_mask",
    "create_chunked_causal_mask",
}
_BIDIRECTIONAL = "create_bidirectional_mask"


def _form(text: str) -> Signature:
    """Return a signature written as words: ``name=`` has a default, what follows ``*`` is a keyword."""
    words = text.split()
    n_positional = words.index("*") if "*" in words else len(words)
    kinds = (Parameter.POSITIONAL_OR_KEYWORD,) * n_positional + (Parameter.KEYWORD_ONLY,) * len(
        words
    )
    parameters = [
        Parameter(word.rstrip("="), kind, default=None if word[-1] == "=" else Parameter.empty)
        for word, kind in zip(words, kinds, strict=False)
        if word != "*"
    ]
    return Signature(parameters)


_LAST = "position_ids= or_mask_function= and_mask_function="
_CAUSAL = (
    (
        between("4.53", "5.1"),
        _form(f"config input_embeds attention_mask cache_position past_key_values {_LAST}"),
    ),
    (
        between("5.2", "5.3"),
        _form(f"config inputs_embeds attention_mask cache_position past_key_values {_LAST}"),
    ),
    (
        between("5.4", "5.8"),
        _form(f"config inputs_embeds attention_mask cache_position= * past_key_values {_LAST}"),
    ),
    (
        between("5.9", "5.13"),
        _form(f"config inputs_embeds attention_mask past_key_values {_LAST} block_sequence_ids="),
    ),
    (
        between("5.14", "5.14"),
        _form(
            f"config inputs_embeds attention_mask past_key_values {_LAST} block_sequence_ids= "
            "layer_idx="
        ),
    ),
    (
        since("5.15"),
        _form(
            f"config inputs_embeds attention_mask past_key_values {_LAST} block_sequence_ids= "
            "layer_idx= allow_is_causal_skip="
        ),
    ),
)
"""Releases -> the parameters of the functions for causal masks, from their sources."""
_HAS_OLD_NAME = between("5.2", "5.8")
"""Releases in which input_embeds still is inputs_embeds."""
_WITHOUT_MASKS = between("4.48", "4.52")
_SDPA = "sdpa_attention_forward"


def _longer_mask(project: Project) -> Iterator[Problem]:
    if not any(
        source.from_library(node).endswith((_SDPA, "ALL_ATTENTION_FUNCTIONS"))
        for source, node in project.nodes(ast.Name)
    ):
        return
    if any(_cuts_to_keys(node) for _, node in project.nodes(ast.Subscript)):
        return
    for source, node in project.nodes(ast.Call):
        if _pads_one_column(source, node):
            yield problem(
                source,
                node,
                "the mask gets one column more than there are keys, and the library's attention "
                "no longer cuts it: RuntimeError about sizes",
                since("5.0", note="eager attention: 5.2 and later"),
                "cut it yourself: attention_mask[:, :, :, : key_states.shape[-2]]",
            )


def _cuts_to_keys(node: ast.Subscript) -> bool:
    """Return True for a last slice of a mask such as ``[..., : key_states.shape[-2]]``."""
    if not isinstance(node.slice, ast.Tuple) or not node.slice.elts:
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
        if not name.startswith(_WHERE) or _is_open(node) or guarded(source, node):
            continue
        function = name.rpartition(".")[2]
        if function in _MASKS:
            releases = _refused(node)
        elif function == _BIDIRECTIONAL:
            releases = _refused_bidirectional(node)
        else:
            continue
        if releases is not None:
            yield problem(
                source,
                node,
                f"{function}() does not take these arguments in every release: TypeError",
                releases,
                "pass only the names in inspect.signature: input_embeds or inputs_embeds, and "
                "cache_position where it exists",
            )


def _is_open(call: ast.Call) -> bool:
    """Return True for a call with ``*args`` or ``**kwargs``."""
    return any(k.arg is None for k in call.keywords) or any(
        isinstance(a, ast.Starred) for a in call.args
    )


def _refused(call: ast.Call) -> Releases | None:
    """Return the releases whose functions for causal masks do not take a call; None: all do."""
    names = [str(k.arg) for k in call.keywords]
    refused = []
    for releases, form in _CAUSAL:
        renamed = releases.meet(_HAS_OLD_NAME.ranges[0])
        accepted = ["inputs_embeds" if renamed and n == "input_embeds" else n for n in names]
        if _is_moved(form, call) or not _binds(form, len(call.args), accepted):
            refused.append(releases)
    return joined(_WITHOUT_MASKS, *refused) if refused else None


def _binds(form: Signature, n_places: int, names: list[str]) -> bool:
    try:
        form.bind(*[None] * n_places, **dict.fromkeys(names))
    except TypeError:
        return False
    return True


def _is_moved(form: Signature, call: ast.Call) -> bool:
    """Return True if the fourth place is the cache on one side, and its position on the other."""
    takes_cache = list(form.parameters)[3] == "past_key_values"
    return len(call.args) > 3 and takes_cache != ("past" in ast.unparse(call.args[3]))


def _refused_bidirectional(call: ast.Call) -> Releases | None:
    names = {k.arg for k in call.keywords}
    if "cache_position" in names:
        return since("4.48")
    if "input_embeds" in names:
        return joined(between("4.48", "4.57"), since("5.9"))
    return None


def _packed_heads(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        name = source.from_library(node.func)
        owner = source.class_of(node)
        if not name.endswith(f".{_SDPA}") or owner is None or not node.args:
            continue
        family = project.family(Class(source, owner)).own if is_self(node.args[0]) else ()
        if not any(n.attr == "num_key_value_groups" for c in family for n in stores(c.node)):
            continue
        yield problem(
            source,
            node,
            "for one token this function packs the heads of a group into the query, so it "
            "rounds differently",
            since("5.23"),
            "none is needed; for the older bits pass keys and values that are already repeated, "
            "from a module without num_key_value_groups",
        )


def _asked_too_early(project: Project) -> Iterator[Problem]:
    """Find a model that asks a part of itself whether it supports SDPA, as the Llava of 4.4x did."""
    for entry in project.models:
        method = entry.method("_supports_sdpa")
        if method is None or guarded(entry.source, method):
            continue
        for node in inside(method, ast.Attribute):
            if own_attribute(node) not in {"", "config"}:
                yield problem(
                    entry.source,
                    node,
                    f"__init__ of the base class asks for this before self.{node.attr} is set: "
                    "AttributeError",
                    since("4.54"),
                    "write a class attribute, _supports_sdpa = True",
                )


RULES = (
    LintRule("SB602", "error", _longer_mask),
    LintRule("SB603", "error", _mask_arguments),
    LintRule("SB604", "note", _packed_heads),
    LintRule("SB607", "error", _asked_too_early),
)
