"""SB8xx: what layers and models return and take, generation, tokenizers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from samebits.lint.guards import guarded
from samebits.lint.layers import library_class
from samebits.lint.names import layer_releases
from samebits.lint.problem import Edit, LintRule, Problem
from samebits.lint.project import Class, Project, problem
from samebits.lint.releases import between, since
from samebits.lint.source import Source
from samebits.lint.syntax import (
    Function,
    argument_names,
    assigned,
    inside,
    is_constant,
    is_name,
    is_super,
    keyword,
    mentions,
    method_call,
    receiver,
)
from samebits.lint.uses import without


def _layer_outputs(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Subscript):
        if not is_constant(node.slice, 0):
            continue
        call = _call_of(source, node)
        if call is None or guarded(source, node):
            continue
        layer = library_class(project, source, call.func)
        releases = layer_releases(layer, "tensor")
        if releases is None:
            continue
        yield problem(
            source,
            node,
            "this layer of the library returns a tensor, so [0] is the first row of the batch",
            releases,
            "take [0] only if isinstance(output, tuple)",
            _tuple_edits(source, node),
        )


def _call_of(source: Source, node: ast.Subscript) -> ast.Call | None:
    """Return the call of ``layer(…)[0]``, or of ``out = layer(…)`` for ``out[0]``."""
    if isinstance(node.value, ast.Call):
        return node.value
    function = source.function(node)
    if not isinstance(node.value, ast.Name) or function is None:
        return None
    name = node.value.id
    if any(
        is_name(n.func, "isinstance", "type") and mentions(n, name)
        for n in inside(function, ast.Call)
    ):
        return None
    calls = assigned(function, name)
    only = calls[0] if len(calls) == 1 else None
    return only if isinstance(only, ast.Call) else None


def _tuple_edits(source: Source, node: ast.Subscript) -> list[Edit]:
    """Return the edits of the statement ``x = layer(…)[0]``."""
    statement = source.parents.get(node)
    function = source.function(node)
    if (
        not isinstance(statement, ast.Assign)
        or not isinstance(node.value, ast.Call)
        or function is None
    ):
        return []
    if len(statement.targets) != 1 or not source.own_lines(statement):
        return []
    name = "output" if not mentions(function, "output") else "layer_output"
    if mentions(function, name):
        return []
    target = statement.targets[0]
    end = source.span(statement)[1]
    pad = " " * statement.col_offset
    line = f"{source.segment(target)} = {name}[0] if isinstance({name}, tuple) else {name}"
    after = source.line_end(statement.end_lineno or statement.lineno)
    ends = source.text[:after].endswith(("\n", "\r"))
    added = f"{pad}{line}{source.newline}" if ends else f"{source.newline}{pad}{line}"
    return [
        Edit(*source.span(target), name),
        Edit(source.span(node.value)[1], end, ""),
        Edit(after, after, added),
    ]


_KEEP = {"num_logits_to_keep": since("4.52"), "logits_to_keep": between("4.48", "4.48")}


def _logits_to_keep(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        for argument in node.keywords:
            if argument.arg not in _KEEP or guarded(source, node):
                continue
            name = library_class(project, source, node.func).rpartition(".")[2]
            if not name.endswith(("ForCausalLM", "ForConditionalGeneration")):
                continue
            yield problem(
                source,
                argument,
                f"{name} ignores {argument.arg}= and returns the logits of all positions",
                _KEEP[argument.arg],
                "cut the logits yourself: logits[:, -1:]",
            )


def _positions(project: Project) -> Iterator[Problem]:
    for entry in project.models:
        method = entry.method("prepare_inputs_for_generation")
        if method is None or guarded(entry.source, method):
            continue
        if any(is_super(n.value) for n in inside(method, ast.Attribute)):
            continue
        taken = [n for n in inside(method, ast.Call) if _takes_positions(n)]
        returned = any(
            is_constant(n, "position_ids") for d in inside(method, ast.Dict) for n in d.keys
        )
        if not taken or not returned or not any(_cuts(method, "input_ids")):
            continue
        if any(not _only_if_none(entry.source, n) for n in _cuts(method, "position_ids")):
            continue
        is_dropped = _drops_positions(method)
        what = (
            "generate() passes the positions, and this method drops them: padded rows are computed at others"
            if is_dropped
            else "generate() passes the positions of the whole text, and this method does not cut them to "
            "the tokens that are fed: RuntimeError about sizes"
        )
        yield problem(
            entry.source,
            taken[0],
            what,
            since("5.2" if is_dropped else "5.3"),
            "cut position_ids[:, -input_ids.shape[1] :] in every case, or delete the method"
            + _without_method(project, entry),
        )


def _without_method(project: Project, entry: Class) -> str:
    """Return what else a class needs to generate without a ``prepare_inputs_for_generation`` of its own."""
    needs = []
    if project.only_base_model(entry, of_models=True) and not project.has_generation(entry):
        # the auto classes add it only to a class that has the method
        needs.append("derive the head from GenerationMixin")
    forward = project.family(entry).method("forward")
    is_closed = forward is not None and forward.args.kwarg is None
    if forward is not None and is_closed and _OWN_POSITIONS not in argument_names(forward):
        needs.append(
            f"let forward take {_OWN_POSITIONS}=None, which the library's method passes up to 5.3"
        )
    return "".join(f", and {need}" for need in needs)


_OWN_POSITIONS = "cache_position"
_BETWEEN_STEPS = ("prepare_inputs_for_generation", "_update_model_kwargs_for_generation")
_MASK = "attention_mask"


_HIDDEN = "output_hidden_states"
_MASKED = "ForMaskedLM"


def _dropped(project: Project) -> Iterator[Problem]:
    """Find an own preparation of inputs that takes any keyword, and passes on those alone that it looks up."""
    for entry in project.models:
        if entry.name.endswith(_MASKED):
            continue  # BERT's class had the method, and nobody generates with it
        method = entry.method("prepare_inputs_for_generation")
        taken = method.args.kwarg if method is not None else None
        if method is None or taken is None or guarded(entry.source, method):
            continue
        forward = project.family(entry).method("forward")
        if forward is not None and not _gives_hidden_states(entry.source, forward):
            continue
        if any(is_constant(n, _HIDDEN) for n in ast.walk(method)):
            continue
        uses = [n for n in inside(method, ast.Name) if n.id == taken.arg]
        if all(_is_looked_up(entry.source, use) for use in uses):
            yield problem(
                entry.source,
                method,
                "generate() passes output_hidden_states and output_attentions to this method, which drops "
                "them: the output has None for each step",
                since("4.57"),
                "pass them on: model_inputs.update({k: v for k, v in "
                f'{taken.arg}.items() if k in ("output_attentions", "output_hidden_states")}})',
            )


def _gives_hidden_states(source: Source, forward: Function) -> bool:
    """Return True if a forward takes the argument by its name, or among others in a file that knows it."""
    if _HIDDEN in argument_names(forward):
        return True
    return forward.args.kwarg is not None and mentions(source.tree, _HIDDEN)


def _is_looked_up(source: Source, node: ast.AST) -> bool:
    """Return True for ``kwargs`` of ``kwargs["x"]``, ``kwargs.get("x")`` and ``"x" in kwargs``."""
    outer = source.parents.get(node)
    if isinstance(outer, ast.Attribute):
        return outer.attr in {"get", "pop"}
    return isinstance(outer, (ast.Subscript, ast.Compare))


def _no_mask(project: Project) -> Iterator[Problem]:
    """Find methods that use the attention mask of generate() as if there was always one."""
    for entry in project.models:
        family = project.family(entry)
        if family.method("get_encoder") is not None:
            continue  # generate() of an encoder-decoder keeps the mask
        forward = family.method("forward")
        if forward is not None and _MASK not in argument_names(forward):
            continue  # and so does that of a forward without one
        for name in _BETWEEN_STEPS:
            method = entry.method(name)
            used = next(_uses_of_mask(method), None) if method is not None else None
            if used is None or guarded(entry.source, used):
                continue
            yield problem(
                entry.source,
                used,
                "generate() passes None for an attention mask of ones, and this uses it as a tensor: "
                "AttributeError",
                since("5.18"),
                "ask whether the value is None: kwargs.get('attention_mask') is not None",
            )


def _asserted_mask(project: Project) -> Iterator[Problem]:
    """Find attention that asserts the mask of a helper which makes none for one token without a mask, as DeepSeek's does."""
    for source in {entry.source for entry in project.models}:
        makers = [source.function(n) for n in inside(source.tree, ast.Call) if _makes_4d(n)]
        if not makers or any(_fills_mask(maker) for maker in makers if maker is not None):
            continue
        for node in inside(source.tree, ast.Assert):
            function = source.function(node)
            if ast.unparse(node.test) != f"{_MASK} is not None" or function is None:
                continue
            if function not in makers and _MASK in argument_names(function):
                yield problem(
                    source,
                    node,
                    "generate() passes None for an attention mask of ones, of which no mask is made for a "
                    "single token: AssertionError",
                    since("5.18"),
                    "drop the assertion: without a mask, a single token sees all keys",
                )


def _makes_4d(node: ast.Call) -> bool:
    name = receiver(node.func) or ""
    return name.startswith("_prepare_4d_causal_attention_mask")


def _fills_mask(maker: Function) -> bool:
    """Return True if a function makes a mask itself where it is given none."""
    values = assigned(maker, _MASK)
    return any(isinstance(v, ast.Call) and not _makes_4d(v) for v in values)


def _uses_of_mask(method: Function) -> Iterator[ast.Attribute]:
    """Yield uses of the mask as a tensor; none if the method asks for None, or makes a mask."""
    held = {_MASK} & argument_names(method)

    def may_be_mask(node: ast.expr) -> bool:
        """Return True for the mask, or a choice that may be it without a look at it."""
        if isinstance(node, ast.IfExp):
            return not may_be_mask(node.test) and (
                may_be_mask(node.body) or may_be_mask(node.orelse)
            )
        return _is_mask_of_kwargs(node) or is_name(node, *held)

    for node in inside(method, ast.Assign):
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        if may_be_mask(node.value):
            held |= names
        elif _MASK in names and not any(map(_is_mask_of_kwargs, ast.walk(node.value))):
            return
    for compare in inside(method, ast.Compare):
        if is_constant(compare.comparators[0], None):
            name = ast.unparse(compare.left)
            if name in held or "mask" in name:
                return
    yield from (n for n in inside(method, ast.Attribute) if may_be_mask(n.value))


def _is_mask_of_kwargs(node: ast.AST) -> bool:
    """Return True for ``kwargs["attention_mask"]`` and ``kwargs.get("attention_mask")``."""
    owner, name = method_call(node)
    key = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else None
    if isinstance(node, ast.Subscript):
        owner, key = node.value, node.slice
    elif name not in {"get", "pop"}:
        return False
    return isinstance(owner, ast.Name) and "kwargs" in owner.id and is_constant(key, _MASK)


def _takes_positions(node: ast.Call) -> bool:
    """Return True for ``kwargs.get("position_ids")`` and ``kwargs.pop("position_ids")``."""
    is_taken = method_call(node)[1] in {"get", "pop"} and bool(node.args)
    return is_taken and is_constant(node.args[0], "position_ids")


def _cuts(method: Function, name: str) -> Iterator[ast.Subscript]:
    """Yield the reads of a part of a variable."""
    for node in inside(method, ast.Subscript):
        if is_name(node.value, name) and isinstance(node.ctx, ast.Load):
            yield node


def _only_if_none(source: Source, node: ast.AST) -> bool:
    """Return True below a test that ``position_ids is None``."""
    for outer in source.ancestors(node):
        if isinstance(outer, Function):
            return False
        if isinstance(outer, ast.If) and any(map(_is_none, ast.walk(outer.test))):
            return not any(node in ast.walk(other) for other in outer.orelse)
    return False


def _drops_positions(method: Function) -> bool:
    """Return True for ``position_ids = None`` where positions are given."""
    branches = (n for n in inside(method, ast.If) if any(map(_is_none, ast.walk(n.test))))
    return any(
        is_constant(node.value, None) and any(is_name(t, "position_ids") for t in node.targets)
        for branch in branches
        for other in branch.orelse
        for node in ast.walk(other)
        if isinstance(node, ast.Assign)
    )


def _is_none(node: ast.AST) -> bool:
    """Return True for ``position_ids is None``."""
    if not isinstance(node, ast.Compare):
        return False
    return is_name(node.left, "position_ids") and isinstance(node.ops[0], ast.Is)


def _chat_template(project: Project) -> Iterator[Problem]:
    for source, node in project.nodes(ast.Call):
        tokenizer, called = method_call(node)
        if called != "apply_chat_template" or tokenizer is None or guarded(source, node):
            continue
        if receiver(tokenizer) not in _RECEIVERS:
            continue
        names = {k.arg for k in node.keywords}
        if names & {"return_dict", None} or len(node.args) > 4:
            continue
        tokenize = keyword(node, "tokenize")
        if tokenize is not None and not is_constant(tokenize.value, True):
            continue
        if "transformers" not in source.text:
            continue
        end = source.span(node)[1] - 1
        before = source.text[:end].rstrip()
        plain = before == source.text[:end] and not before.endswith(",")
        yield problem(
            source,
            node,
            "apply_chat_template() returns a BatchEncoding, no longer a list of token ids",
            since("5.0"),
            "pass return_dict=False",
            [Edit(end, end, ", return_dict=False")]
            if plain and (node.args or node.keywords)
            else (),
        )


_CALL = "call the tokenizer itself: tokenizer(texts)"
_REMOVED = {
    "encode_plus": _CALL,
    "batch_encode_plus": _CALL,
    "prepare_for_model": _CALL,
    "build_inputs_with_special_tokens": _CALL,
    "truncate_sequences": "call the tokenizer itself: tokenizer(texts, truncation=True)",
    "create_token_type_ids_from_sequences": "call tokenizer(a, b, return_token_type_ids=True)",
    "as_target_tokenizer": "call tokenizer(text_target=texts)",
    "prepare_seq2seq_batch": "call tokenizer(texts, text_target=targets)",
    "sanitize_special_tokens": "drop the call",
    "special_tokens_map_extended": "read special_tokens_map",
    "all_special_tokens_extended": "read all_special_tokens",
    "additional_special_tokens": "read extra_special_tokens if the tokenizer has it",
    "additional_special_tokens_ids": "read extra_special_tokens_ids if the tokenizer has it",
}
"""What the tokenizers of 5.x lack -> the remedy. Those written in Python keep some."""
_OF_ALL = ("additional_special_tokens", "additional_special_tokens_ids")
"""Those of them that no tokenizer keeps, written in Python or not: the code of a tokenizer lacks them, too."""
_TOKENIZERS = ("PreTrainedTokenizer", "PreTrainedTokenizerFast", "PreTrainedTokenizerBase")
_RECEIVERS = {"tokenizer", "_tokenizer", "tok"}


def _methods(project: Project) -> Iterator[Problem]:
    defined = {m.name for c in project.classes for m in c.methods()}
    own = {id(node) for tokenizer in _own_tokenizers(project) for node in ast.walk(tokenizer.node)}
    for source, node in project.nodes(ast.Attribute):
        name, releases = node.attr, since("5.0")
        is_own = name in _OF_ALL and receiver(node.value) == "self" and id(node) in own
        is_read = (receiver(node.value) in _RECEIVERS or is_own) and isinstance(node.ctx, ast.Load)
        if name == "words" and _is_encoding(source, node):
            what, remedy = "what a tokenizer returns", "write word_ids()"
        elif is_read and name in _REMOVED and name not in defined:
            what, remedy = "a tokenizer", _REMOVED[name]
        elif is_read and (lacking := without("methods", "tokenizer", name)) and name not in defined:
            what, remedy, releases = "a tokenizer", "call it only in a release that has it", lacking
        else:
            continue
        if "transformers" in source.text and not guarded(source, node):
            shown = f"{name}()" if _calls(source, node) else name
            text = f"{what} has no {shown}: AttributeError"
            yield problem(source, node, text, releases, remedy)


def _own_tokenizers(project: Project) -> Iterator[Class]:
    """Yield the tokenizers that the project writes itself."""
    for entry in project.classes:
        if not project.family(entry).names_outside.isdisjoint(_TOKENIZERS):
            yield entry


def _calls(source: Source, node: ast.Attribute) -> bool:
    parent = source.parents.get(node)
    return isinstance(parent, ast.Call) and parent.func is node


def _is_encoding(source: Source, node: ast.Attribute) -> bool:
    """Return True for a variable that holds what ``tokenizer(…)`` returned."""
    if not isinstance(node.value, ast.Name) or not _calls(source, node):
        return False
    values = assigned(source.function(node) or source.tree, node.value.id)
    return bool(values) and all(
        isinstance(value, ast.Call) and receiver(value.func) in _RECEIVERS for value in values
    )


RULES = (
    LintRule("SB803", "warning", _layer_outputs),
    LintRule("SB804", "warning", _logits_to_keep),
    LintRule("SB805", "error", _positions),
    LintRule("SB718", "error", _no_mask),
    LintRule("SB718", "error", _asserted_mask),
    LintRule("SB890", "warning", _dropped),
    LintRule("SB808", "warning", _chat_template),
    LintRule("SB809", "error", _methods),
)
