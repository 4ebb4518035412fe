"""SB2xx, SB503: attributes of a config that a release no longer sets."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from samebits.lint.guards import guarded
from samebits.lint.problem import Edit, LintRule, Problem
from samebits.lint.project import (
    Class,
    Project,
    asks,
    is_base_config,
    is_config,
    is_self,
    mentions,
    problem,
)
from samebits.lint.releases import since

if TYPE_CHECKING:
    from samebits.lint.source import Source

REMOVED = frozenset(
    [
        "add_cross_attention",
        "bad_words_ids",
        "begin_suppress_tokens",
        "bos_token_id",
        "cross_attention_hidden_size",
        "decoder_start_token_id",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "eos_token_id",
        "exponential_decay_length_penalty",
        "finetuning_task",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "is_decoder",
        "length_penalty",
        "max_length",
        "min_length",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_return_sequences",
        "output_scores",
        "pad_token_id",
        "prefix",
        "pruned_heads",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict_in_generate",
        "sep_token_id",
        "suppress_tokens",
        "task_specific_params",
        "temperature",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "tie_word_embeddings",
        "tokenizer_class",
        "top_k",
        "top_p",
        "torchscript",
        "typical_p",
        "use_bfloat16",
    ]
)
"""Attributes of ``PretrainedConfig()`` in 4.48 and 4.57 that 5.2, 5.23 and 5.24 do not set."""

_GENERATION = REMOVED - frozenset(
    [
        "add_cross_attention",
        "bos_token_id",
        "cross_attention_hidden_size",
        "decoder_start_token_id",
        "eos_token_id",
        "finetuning_task",
        "is_decoder",
        "pad_token_id",
        "prefix",
        "pruned_heads",
        "sep_token_id",
        "task_specific_params",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "tie_word_embeddings",
        "tokenizer_class",
        "torchscript",
        "use_bfloat16",
    ]
)
"""Those that 5.x does not set either if config.json has them, or a class hands them to its base class: measured in
5.0, 5.2, 5.13 and 5.24."""


def _config_reads(
    project: Project, names: frozenset[str]
) -> Iterator[tuple[Source, ast.Attribute]]:
    """Yield ``config.x`` and ``self.config.x`` for these names, where they are read unguarded."""
    for source, node in project.nodes(ast.Attribute):
        if node.attr not in names:
            continue
        if isinstance(node.ctx, ast.Load) and _is_config(node.value) and not guarded(source, node):
            yield source, node


def _is_config(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "config" and is_self(node.value)
    return isinstance(node, ast.Name) and node.id == "config"


def _is_of_generate(node: ast.AST) -> bool:
    """Return True for ``generation_config``, which no model's config is."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name == "generation_config"


def _sets(entry: Class, name: str, read: ast.AST | None = None) -> bool:
    """Return True if a config class sets an attribute, or passes it to its base class.

    ``read`` is the node that reads it while the class itself is made: what stands behind it is too late.
    """
    if entry.attribute(name) is not None:
        return True
    end = read.lineno if isinstance(read, ast.Attribute) else sys.maxsize
    for node in ast.walk(entry.node):
        if (
            isinstance(node, ast.Attribute)
            and node.attr == name
            and isinstance(node.ctx, ast.Store)
            and node.lineno < end
        ):
            return True
        if isinstance(node, ast.keyword) and node.arg == name and name not in _GENERATION:
            return True
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return True
        if isinstance(node, ast.Constant) and node.value == name:
            return True  # setattr, a dict of defaults, an attribute_map
    return False


def _missing(project: Project) -> Iterator[Problem]:
    assigned = {
        n.attr
        for _, n in project.nodes(ast.Attribute)
        if isinstance(n.ctx, ast.Store) and not is_self(n.value) and not _is_of_generate(n.value)
    }
    for source, node in _config_reads(project, REMOVED - assigned):
        entry = project.config_of(source, node.value, node)
        if not isinstance(entry, Class):
            continue
        classes, outside = project.family(entry)
        own = bool(outside) and all(map(is_base_config, outside))
        if not own or any(_sets(c, node.attr) for c in classes):
            continue
        written = project.checkpoint(source) or project.checkpoint(entry.source)
        if written is not None and node.attr in written and node.attr not in _GENERATION:
            continue
        if not asks(source, node, node.attr):
            yield _unset(entry, source, node)


def _read_by_itself(project: Project) -> Iterator[Problem]:
    """Find a config that reads in ``__init__`` what its base class set, as copies of BART's do."""
    for entry in project.configs:
        classes, outside = project.family(entry)
        init = entry.method("__init__")
        if init is None or not all(map(is_base_config, outside)):
            continue
        for node in ast.walk(init):
            if not isinstance(node, ast.Attribute) or node.attr not in _GENERATION:
                continue
            if not isinstance(node.ctx, ast.Load) or not is_self(node.value):
                continue
            is_set = any(_sets(c, node.attr, node if c == entry else None) for c in classes)
            if is_set or guarded(entry.source, node) or asks(entry.source, node, node.attr):
                continue
            yield _unset(entry, entry.source, node)


def _unset(entry: Class, source: Source, node: ast.Attribute) -> Problem:
    return problem(
        "SB201",
        source,
        node,
        f"{entry.name} does not set {node.attr}, and the base config no longer does: "
        "AttributeError",
        since("5.0"),
        f"set self.{node.attr} in {entry.name}.__init__, with 4.48's default",
    )


def _library_config(project: Project, source: Source, node: ast.AST, where: ast.AST) -> bool:
    """Return True if a config is of a library's own class with rope, and does not set theta."""
    entry = project.config_of(source, node, where)
    if isinstance(entry, str):
        return is_config(entry) and not is_base_config(entry)
    if not isinstance(entry, Class):
        return False
    classes, outside = project.family(entry)
    library = [n for n in outside if is_config(n) and not is_base_config(n)]
    return bool(library) and not any(_sets(c, "rope_theta") for c in classes)


def _rope_theta(project: Project) -> Iterator[Problem]:
    for source, node in _config_reads(project, frozenset({"rope_theta"})):
        function = source.function(node)
        if function is not None and mentions(function, "rope_parameters"):
            continue
        if not _library_config(project, source, node.value, node):
            continue
        config = source.segment(node.value)
        start, end = source.span(node)
        text = (
            f'({config}.rope_theta if hasattr({config}, "rope_theta") '
            f'else {config}.rope_parameters["rope_theta"])'
        )
        yield problem(
            "SB202",
            source,
            node,
            "a config class of the library has no rope_theta: AttributeError",
            since("5.0"),
            'read config.rope_parameters["rope_theta"] if the config has it',
            [Edit(start, end, text)],
        )


def _rope_default(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        if source.dotted(node.func) != "getattr":
            continue
        if len(node.args) != 3 or not _is_config(node.args[0]):
            continue
        field = node.args[1]
        if not isinstance(field, ast.Constant) or field.value != "rope_theta":
            continue
        function = source.function(node)
        if function is not None and mentions(function, "rope_parameters"):
            continue
        if guarded(source, node) or not _library_config(project, source, node.args[0], node):
            continue
        yield problem(
            "SB503",
            source,
            node,
            "the config has no rope_theta, so the default is used and every position is "
            "rotated by wrong angles, without an exception",
            since("5.0"),
            'read config.rope_parameters["rope_theta"] first, then config.rope_theta',
        )


RULES = (
    LintRule("SB201", "error", _missing),
    LintRule("SB201", "error", _read_by_itself),
    LintRule(
        "SB202",
        "error",
        _rope_theta,
    ),
    LintRule("SB503", "warning", _rope_default),
)
