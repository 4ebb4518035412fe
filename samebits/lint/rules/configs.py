"""SB2xx, SB503, SB507: attributes of a config that a release no longer sets, or sets to something else."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from samebits.lint.guards import guarded
from samebits.lint.problem import Edit, LintRule, Problem
from samebits.lint.project import (
    Class,
    Project,
    asks,
    is_base_config,
    is_config,
    is_library_model,
    problem,
)
from samebits.lint.releases import between, since
from samebits.lint.source import Source
from samebits.lint.syntax import (
    assigned,
    inside,
    is_constant,
    is_name,
    is_self,
    mentions,
    method_call,
    own_attribute,
    receiver,
    stores,
)

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

_OF_FILE = "use_cache"
"""A parameter of generate() that 4.48 has of config.json alone, and many classes set themselves."""

_DROPPED = _GENERATION | {_OF_FILE}


def _config_reads(
    project: Project, names: frozenset[str]
) -> Iterator[tuple[Source, ast.Attribute, ast.expr]]:
    """Yield ``config.x`` and ``self.config.x`` for these names, where they are read unguarded, with the config.

    It may have another name in a function: ``cfg = self.config``.
    """
    for source, node in project.nodes(ast.Attribute):
        if node.attr not in names or not isinstance(node.ctx, ast.Load):
            continue
        config = _config_behind(source, node)
        if config is not None and not guarded(source, node):
            yield source, node, config


def _config_behind(source: Source, node: ast.Attribute) -> ast.expr | None:
    """Return the config that an attribute is read from; None if it is none."""
    if _is_config(node.value):
        return node.value
    function = source.function(node)
    if function is None or not isinstance(node.value, ast.Name):
        return None
    values = assigned(function, node.value.id)
    is_argument = any(a.arg == node.value.id for a in inside(function.args, ast.arg))
    return values[0] if len(values) == 1 and not is_argument and _is_config(values[0]) else None


def _is_config(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "config" and is_self(node.value)
    return is_name(node, "config")


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
        if isinstance(node, ast.keyword) and node.arg == name and name not in _DROPPED:
            return True
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return True
        if isinstance(node, ast.Constant) and node.value == name:
            return True  # setattr, a dict of defaults, an attribute_map
    return False


def _missing(project: Project) -> Iterator[Problem]:
    stored = {
        n.attr
        for _, n in project.nodes(ast.Attribute)
        if isinstance(n.ctx, ast.Store)
        # no model's config is self, or the config of generate()
        and receiver(n.value) != "generation_config"
        and not is_self(n.value)
    }
    for source, node, config in _config_reads(project, (REMOVED | {_OF_FILE}) - stored):
        entry = project.config_of(source, config, node)
        if not isinstance(entry, Class):
            continue
        classes, outside = project.family(entry)
        own = bool(outside) and all(map(is_base_config, outside))
        if not own or any(_sets(c, node.attr) for c in classes):
            continue
        written = project.checkpoint(source) or project.checkpoint(entry.source) or {}
        is_stated = node.attr in written
        if node.attr not in _DROPPED if is_stated else node.attr == _OF_FILE:
            continue
        if not asks(source, node, node.attr):
            yield _unset(entry, source, node)


def _read_by_itself(project: Project) -> Iterator[Problem]:
    """Find a config that reads in ``__init__`` what its base class set, as copies of BART's do."""
    for entry, classes in _plain_configs(project):
        for node in inside(entry.method("__init__"), ast.Attribute):
            if own_attribute(node) not in _GENERATION or not isinstance(node.ctx, ast.Load):
                continue
            is_set = any(_sets(c, node.attr, node if c == entry else None) for c in classes)
            if is_set or guarded(entry.source, node) or asks(entry.source, node, node.attr):
                continue
            yield _unset(entry, entry.source, node)


def _read_by_methods(project: Project) -> Iterator[Problem]:
    """Find a config whose methods or properties read what the base config no longer sets."""
    for entry, classes in _plain_configs(project):
        written = project.checkpoint(entry.source) or {}
        stated = written.keys() - _GENERATION
        for method in (m for m in entry.methods() if m.name != "__init__"):
            for node in inside(method, ast.Attribute):
                if own_attribute(node) not in REMOVED - stated:
                    continue
                is_set = any(_sets(c, node.attr) for c in classes)
                if is_set or not isinstance(node.ctx, ast.Load) or guarded(entry.source, node):
                    continue
                yield _unset(entry, entry.source, node)


def _plain_configs(project: Project) -> Iterator[tuple[Class, list[Class]]]:
    """Yield the config classes that derive from no model's config, each with its ancestors in the project."""
    for entry in project.configs:
        classes, outside = project.family(entry)
        if all(map(is_base_config, outside)):
            yield entry, classes


def _unset(entry: Class, source: Source, node: ast.Attribute) -> Problem:
    remedy = f"set self.{node.attr} in {entry.name}.__init__, with 4.48's default"
    if node.attr in _GENERATION:
        owner = ast.unparse(node.value)
        remedy = (
            f"write getattr({owner}, {node.attr!r}, …) with 4.48's default: 5.20 and later neither "
            "save a config that sets it nor generate with one"
        )
    return problem(
        source,
        node,
        f"{entry.name} does not set {node.attr}, and the base config no longer does: "
        "AttributeError",
        since("5.0"),
        remedy,
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
    for source, node, value in _config_reads(project, frozenset({"rope_theta"})):
        function = source.function(node)
        if function is not None and mentions(function, "rope_parameters"):
            continue
        if not _library_config(project, source, value, node):
            continue
        config = source.segment(node.value)
        start, end = source.span(node)
        text = (
            f'({config}.rope_theta if hasattr({config}, "rope_theta") '
            f'else {config}.rope_parameters["rope_theta"])'
        )
        yield problem(
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
            source,
            node,
            "the config has no rope_theta, so the default is used and every position is "
            "rotated by wrong angles, without an exception",
            since("5.0"),
            'read config.rope_parameters["rope_theta"] first, then config.rope_theta',
        )


_FILLED = {"rope_type", "rope_theta"}
"""What 5.x writes into an empty ``rope_scaling``."""
_PLAIN = ("rope_type", "rope_parameters")
"""Words of code that knows the form of 5.x."""


def _rope_scaling(project: Project) -> Iterator[Problem]:
    """Find a key of ``config.rope_scaling`` that is read where it is not None, as it never is in 5.x."""
    seen: set[ast.AST] = set()
    for kind in (ast.Subscript, ast.Call):
        for source, node in project.nodes(kind):
            key, owner = _key_read(node)
            function = source.function(node)
            if owner is None or function is None or key in _FILLED or function in seen:
                continue
            config = _scaling_of(source, function, owner)
            if config is None or guarded(source, node, _NO_KEY) or asks(source, node, *_PLAIN):
                continue
            if not _asks_whether(source, function, owner) or _tells_apart(function):
                continue
            if not _fills_scaling(project, source, config, node, key):
                continue
            seen.add(function)
            result = f"KeyError: {key!r}" if kind is ast.Subscript else f"{key} is None"
            yield problem(
                source,
                node,
                "config.rope_scaling is a dict with rope_type 'default' where config.json has none: "
                + result,
                since("5.0"),
                "take a rope_scaling whose rope_type is 'default' for none",
            )


_NO_KEY = {"KeyError"}


def _key_read(node: ast.AST) -> tuple[str, ast.expr | None]:
    """Return the key and the dict of ``x["key"]`` and ``x.get("key")``; None for anything else."""
    owner, name = method_call(node)
    key = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        owner, key = node.value, node.slice
    elif name != "get":
        key = None
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return "", None
    return key.value, owner


def _scaling_of(source: Source, function: ast.AST, node: ast.expr) -> ast.expr | None:
    """Return the config whose ``rope_scaling`` an expression is, or is assigned from; None if it is none."""
    if isinstance(node, ast.Attribute) and node.attr == "rope_scaling" and _is_config(node.value):
        return node.value
    scope = source.class_of(function) if own_attribute(node) else function
    if scope is None or not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    values = assigned(scope, ast.unparse(node))
    if len(values) != 1 or not isinstance(values[0], ast.Attribute):
        return None
    value = values[0]
    return value.value if value.attr == "rope_scaling" and _is_config(value.value) else None


def _asks_whether(source: Source, function: ast.AST, owner: ast.expr) -> bool:
    """Return True if a function tells None, or a dict without keys, from the others."""
    text = ast.unparse(owner)
    for node in ast.walk(function):
        if not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        if receiver(node) != "rope_scaling" and ast.unparse(node) != text:
            continue
        around = source.parents.get(node)
        if isinstance(around, ast.Compare) and isinstance(around.ops[0], (ast.Is, ast.IsNot)):
            return True
        if isinstance(around, (ast.BoolOp, ast.UnaryOp)):
            return True
        if isinstance(around, (ast.If, ast.IfExp)) and around.test is node:
            return True
    return False


def _tells_apart(function: ast.AST) -> bool:
    """Return True for ``"key" in rope_scaling``, and for a comparison with the type of plain rope."""
    return any(
        _asks_for_key(n) or any(is_constant(m, "default") for m in ast.walk(n))
        for n in inside(function, ast.Compare)
    )


def _asks_for_key(node: ast.Compare) -> bool:
    """Return True for a test of a key that the dict of plain rope does not have."""
    is_test = isinstance(node.ops[0], (ast.In, ast.NotIn))
    return is_test and isinstance(node.left, ast.Constant) and node.left.value not in _FILLED


def _fills_scaling(
    project: Project, source: Source, config: ast.expr, where: ast.AST, key: str
) -> bool:
    """Return True if the base class fills the ``rope_scaling`` of a config, which config.json does not state.

    It does so at its own ``__init__``: a value that is assigned behind that call stays None.
    """
    entry = project.config_of(source, config, where)
    if isinstance(entry, str):
        return is_config(entry) and not is_base_config(entry)
    if not isinstance(entry, Class):
        return False
    written = project.checkpoint(source) or project.checkpoint(entry.source) or {}
    stated = written.get("rope_scaling") or written.get("rope_parameters") or {}
    if isinstance(stated, dict) and key in stated:
        return False
    classes, outside = project.family(entry)
    order = [line for c in classes for line in _order(c)]
    if "late" in order:
        return False
    return "set" in order or any(is_config(n) and not is_base_config(n) for n in outside)


def _order(entry: Class) -> Iterator[str]:
    """Yield ``set`` for an assignment of ``self.rope_scaling`` in ``__init__``, and ``late`` for one behind the base's."""
    call = entry.base_init()
    for node in stores(entry.method("__init__")):
        if call is not None and own_attribute(node) == "rope_scaling":
            yield "late" if node.lineno > call.lineno else "set"


def _config_classes(project: Project) -> Iterator[Problem]:
    """Yield models whose config class a release does not know, or does not take for that of ``auto_map``."""
    for entry in project.loaded:
        if project.declared(entry, "config_class") is not None:
            continue
        yield from _annotated_config(project, entry)
        yield from _namesake(project, entry)


def _annotated_config(project: Project, entry: Class) -> Iterator[Problem]:
    """Yield a class that declares its config class by ``config: C`` alone."""
    node = next(filter(_is_of_config, entry.node.body), None)
    if node is None or not project.only_base_model(entry, of_models=True):
        return
    assert isinstance(node, ast.AnnAssign)
    source, quoted = entry.source, isinstance(node.annotation, ast.Constant)
    name = source.segment(node.annotation).strip("\"'")
    line = f"config_class = {name}"
    start, end = source.span(node)
    indent = source.text[source.line_start(node.lineno) : start]
    edits = [] if quoted else [Edit(end, end, f"{source.newline}{indent}{line}")]
    yield problem(
        source,
        node,
        "the annotation `config` does not set `config_class`, so the model cannot be loaded",
        between("4.48", "4.53"),
        f"write `{line}` beside it",
        edits if source.own_lines(node) else (),
    )


def _is_of_config(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and is_name(node.target, "config") and node.value is None


_OF_ONE_MODEL = re.compile(r"(\w+?)(PreTrainedModel|Model|For[A-Z]\w*)")


def _namesake(project: Project, entry: Class) -> Iterator[Problem]:
    """Yield a class that gets a library's config class, where ``auto_map`` has another one of that name."""
    written = (project.checkpoint(entry.source) or {}).get("auto_map")
    loaded = str(written.get("AutoConfig")) if isinstance(written, dict) else ""
    if entry.name not in project.loaded_as(entry.source):
        return
    for base in project.family(entry).outside:
        match = _OF_ONE_MODEL.fullmatch(base.rpartition(".")[2])
        name = f"{match[1]}Config" if match is not None else ""
        if is_library_model(base) and name == loaded.rpartition(".")[2]:
            yield problem(
                entry.source,
                entry.node,
                f"`config_class` is transformers' own `{name}`, and config.json names another class",
                between("4.48", "4.48"),
                f"import that `{name}` and write `config_class = {name}` into the class",
            )


RULES = (
    LintRule("SB201", "error", _missing),
    LintRule("SB201", "error", _read_by_itself),
    LintRule("SB201", "error", _read_by_methods),
    LintRule("SB202", "error", _rope_theta),
    LintRule("SB216", "error", _config_classes),
    LintRule("SB503", "warning", _rope_default),
    LintRule("SB507", "error", _rope_scaling),
)
