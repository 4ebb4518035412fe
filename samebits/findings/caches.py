"""SB7xx: rules for the KV cache, as an object and for the numbers of cached decoding."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.compare.standing import Standing
from samebits.findings.rule import Rule, Sighting, raised
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case
    from samebits.records.capture import Capture
    from samebits.records.relations import Relation, RelationName

_attribute = raised("AttributeError", r"'\w*Cache'( object)? has no attribute '\w+'")
_tuple = raised(
    "TypeError|AttributeError",
    r"'\w*Cache' object is not (subscriptable|iterable)"
    r"|'tuple' object has no attribute '(get_seq_length|update|get_usable_length)'",
)
_crop = raised("ValueError", r"Calling `crop` with a positive value")
_NAMED_ERRORS = (_attribute, _tuple, _crop)
"""Cache exceptions with a rule of their own, for which no suspicious line is reported."""
_CACHED_RELATIONS: tuple[RelationName, ...] = (
    "full forward = prefill + decode",
    "prefill split anywhere",
    "multi-token verify = single-token decode",
)
_CHUNKED_RELATIONS: tuple[RelationName, ...] = (
    "prefill split anywhere",
    "multi-token verify = single-token decode",
)


def _has_delta_net(capture: Capture) -> bool:
    """Return True if a gated delta-net ran. Other linear attention (minimax) does not count."""
    code = capture.signals.code
    return code is not None and any("GatedDeltaNet" in name for name in code.executed)


def _distances(relation: Relation) -> str:
    assert relation.distance is not None
    assert relation.promoted is not None
    what = ", ".join(layer.name for layer in relation.layers if layer.name.startswith("output"))
    return (
        f"{relation.relation} ({relation.case}): {what or 'logits'} differ by up to "
        f"{relation.distance.max_abs:.2g}, and by {relation.promoted.max_abs:.2g} in float64"
    )


def _seen(case: Case, relations: list[Relation]) -> tuple[str, ...]:
    """Return the evidence of relations: their distances, and whose they are if a made model's."""
    return (*map(_distances, relations), *case.asked_of)


def _broken_chunks(case: Case) -> Iterator[Sighting]:
    """Find chunks that ignore the recurrent state while single-token decoding keeps it."""
    if not _has_delta_net(case.capture):
        return
    broken = list(case.broken(*_CHUNKED_RELATIONS))
    if broken and not list(case.broken("full forward = prefill + decode")):
        yield Sighting("multi-token forward with a cache", _seen(case, broken))


def _is_not_causal(case: Case) -> bool:
    """Return True if rows depend on later tokens, so that decoding cannot agree with a forward."""
    return any(not relation.note for relation in case.broken("causality"))


def _formulations(case: Case) -> Iterator[Sighting]:
    """Find a delta-net whose two formulations ran and differ by rounding."""
    decoded = (case.capture.signals.first_token or {}).values()
    code = case.capture.signals.code
    chunked = [name for name in (code.executed if code is not None else {}) if _CHUNK.search(name)]
    stepped = {name for token in decoded for name in token.functions if _RECURRENT.search(name)}
    if not chunked or not stepped:
        return
    relations = list(case.standing(Standing.ROUNDING, "full forward = prefill + decode"))
    if relations:
        ran = f"the prompt ran {chunked[0]}, the token after it {min(stepped)}"
        yield Sighting("gated delta rule", (ran, *_seen(case, relations)))


_CHUNK = re.compile(r"chunk_gated_delta_rule$")
_RECURRENT = re.compile(r"recurrent_gated_delta_rule$")


def _broken_cached_forward(case: Case) -> Iterator[Sighting]:
    """Find a cached path that computes a different function, unless a narrower rule applies."""
    if list(_broken_chunks(case)) or _is_not_causal(case):
        return
    broken = [r for r in case.broken(*_CACHED_RELATIONS) if not r.note]
    if broken:
        yield Sighting("forward with a cache", _seen(case, broken))


def _broken_padding(case: Case) -> Iterator[Sighting]:
    names: list[RelationName] = ["left padding", "right padding", "batch size"]
    if _is_not_causal(case):
        names.remove("right padding")
    broken = [r for r in case.broken(*names) if not r.note]
    if broken:
        yield Sighting("padded batch", _seen(case, broken))


def _broken_causality(case: Case) -> Iterator[Sighting]:
    broken = [relation for relation in case.broken("causality") if not relation.note]
    if broken:
        yield Sighting("causality", _seen(case, broken))


def _left_behind(case: Case) -> Iterator[Sighting]:
    """Find a value that a model leaves in its modules and that changes its next forward."""
    state = case.capture.signals.state
    if state is None or not state.is_left or not state.causes:
        return
    off = state.distance.max_abs if state.distance is not None else 0.0
    amount = f": the logits are off by {off:.2g}" if off else ""
    names = ", ".join(cause.name for cause in state.causes)
    again = (
        f"prompt {state.prompt}, run again after all prompts and generate(), gives other bytes "
        f"than the first time in {', '.join(state.outputs) or 'its output'}{amount}"
    )
    undone = f"it gives the first bytes again once this is as it was: {names}"
    yield Sighting(state.causes[0].name, (again, undone))


def _decoding_change(case: Case) -> str | None:
    """Return how decoding differs from the reference or a full forward; None if it does not."""
    if case.first() in ("decode", "greedy"):
        return "decoding with the cache is the first signal that differs from the reference"
    if case.failure is not None and case.failure.phase.startswith("greedy"):
        is_named = any(list(check(case)) for check in _NAMED_ERRORS)
        return None if is_named else case.exception_lines()[0]
    broken = next(case.broken(*_CACHED_RELATIONS), None)
    return "; ".join(_seen(case, [broken])) if broken is not None else None


def _cache_truth(case: Case) -> Iterator[Sighting]:
    change = _decoding_change(case)
    for idiom in case.idioms("truth of a cache") if change else ():
        yield Sighting(f"{idiom.file}:{idiom.line}", (f"tested: {idiom.code}", change or ""))


def _past_key_value(case: Case) -> Iterator[Sighting]:
    change = _decoding_change(case)
    for idiom in case.idioms("past_key_value keyword") if change else ():
        yield Sighting(f"{idiom.file}:{idiom.line}", (f"called: {idiom.code}", change or ""))


RULES = (
    Rule(
        RuleText(
            code="SB701",
            name="the cache object no longer has this attribute",
            kind="crash",
            looks_for="AttributeError on a …Cache object",
            cause="Caches are now lists of layers, and attributes of the old form were "
            "removed: key_cache, value_cache, seen_tokens and get_usable_length after 4.53; "
            "to_legacy_cache and from_legacy_cache in 5.0; get_max_cache_shape by 5.23. "
            "get_max_length exists in 4.48 and 5.23, and not in 4.57 and 5.2. Reading a removed "
            "one raises AttributeError. Affected: custom models that read the cache directly.",
            remedy="Use update() and get_seq_length(), which every release has. Read tensors "
            "from `cache.layers[i].keys` if the cache has layers, and from `cache.key_cache[i]` "
            "otherwise.",
            example="past = cache.get_seq_length() if cache is not None else 0\n"
            'keys = cache.layers[i].keys if hasattr(cache, "layers") else cache.key_cache[i]',
            releases="key_cache: up to 4.53. layers: from 4.57 on. Legacy tuples: up to 4.57.",
            references=("transformers/cache_utils.py",),
        ),
        _attribute,
    ),
    Rule(
        RuleText(
            code="SB702",
            name="the cache is no longer a tuple of tuples",
            kind="crash",
            looks_for="TypeError: '…Cache' object is not subscriptable or not iterable; or an "
            "AttributeError of a tuple that is used as a cache",
            cause="Up to 4.57 `cache[i]` and a loop over a cache give the pair (keys, values) "
            "of each layer. 5.0 removed the subscript, and a loop gives three values per layer. "
            "The other way round, the classes of the library take no tuples as caches in any of "
            "the releases here. Affected: custom models that use the tuple format of older "
            "releases.",
            remedy="Use the methods of the cache: `cache.update(k, v, layer_idx)` and "
            "cache.get_seq_length().",
            example="key, value = cache.update(key, value, self.layer_idx)",
            releases="Subscripts, and loops over pairs: up to 4.57",
            references=(
                "transformers/cache_utils.py",
                "https://github.com/FastCrest/tether/issues/184",
            ),
        ),
        _tuple,
    ),
    Rule(
        RuleText(
            code="SB703",
            name="a cached forward of several tokens ignores the recurrent state",
            kind="silent",
            looks_for="a model with gated delta-net layers where cached forwards of several "
            "tokens differ from one forward, also in float64, and where decoding token by token "
            "does not",
            cause="The layer uses its convolution state and recurrent state only if it is fed "
            "exactly one token. For several tokens it starts from a zero state, as if there were "
            "no past, without an exception. Affected: users of qwen3_next and qwen3_5 with "
            "chunked prefill, assisted decoding or a prefix cache that is reused.",
            remedy="Use 5.9 or later. In older releases feed cached tokens one at a time: no "
            "chunked prefill, no assisted decoding, no reuse of a prefix cache.",
            releases="qwen3_next: wrong in 4.57 to 5.6. qwen3_5: wrong in 5.2 to 5.6. Both are "
            "right from 5.9 on.",
            references=("https://github.com/huggingface/transformers/pull/45513",),
        ),
        _broken_chunks,
    ),
    Rule(
        RuleText(
            code="SB704",
            name="decoding with the cache computes a different function than one forward",
            kind="silent",
            looks_for="prefill and decode, a split prefill or a multi-token verify that differs "
            "from one forward, also in float64. Not reported if rope depends on the length, "
            "because the two then differ by design, or if rows depend on later tokens (SB706), "
            "because decoding cannot agree then",
            cause="Often the cache loses, repeats or misplaces something: a layer ignores the "
            "keyword (past_key_value / past_key_values), an empty cache is treated as a filled "
            "one, positions or masks are counted from the wrong place, or a state is not passed "
            "on. Or the class has one formula for many tokens and one for a single token, and "
            "they are different functions; then the forward may be the wrong one (mamba2 in "
            "4.48). Affected: everyone who uses generate() with this model in this release.",
            remedy="The model's page shows the first layer and position that differ. In own "
            "code: pass the cache under the name in the layer's signature, and test "
            "`get_seq_length() > 0` instead of the truth value of the cache.",
            releases="Depends on the model. Stock models: docs/found.md.",
            references=(
                "https://github.com/huggingface/transformers/issues/25420",
                "https://github.com/openvla/openvla/issues/348",
            ),
        ),
        _broken_cached_forward,
    ),
    Rule(
        RuleText(
            code="SB705",
            name="padding or batching changes the results of real tokens",
            kind="silent",
            looks_for="a row whose logits in a padded or larger batch differ from those of the "
            "same row without padding, also in float64. Right padding is left out if rows depend "
            "on later tokens (SB706)",
            cause="Padding: pad tokens enter a convolution, a recurrent state or a router, "
            "positions are counted over them, or the mask is ignored (rwkv). Batch size: rows are "
            "mixed, because a step drops or broadcasts an axis (falcon_h1). Affected: everyone "
            "who runs this model in batches in this release.",
            remedy="Feed rows of equal length without padding, or use a release without this "
            "finding.",
            releases="Depends on the model; see docs/found.md",
            references=("https://github.com/huggingface/transformers/issues/46873",),
        ),
        _broken_padding,
    ),
    Rule(
        RuleText(
            code="SB706",
            name="later tokens change earlier rows",
            kind="silent",
            looks_for="rows before a changed token that change, also in float64",
            cause="The model is not causal: the mask lets later tokens through, a sum runs "
            "over the wrong axis (zamba2's decay between chunks, up to 5.2), or a table is "
            "computed from the whole sequence. Cached decoding cannot agree with a forward then. "
            "Affected: everyone who uses this model in this release.",
            remedy="The model's page shows the positions that change. In own code check the "
            "mask, and every sum over the sequence axis.",
            releases="Depends on the model; see docs/found.md",
            references=(),
        ),
        _broken_causality,
    ),
    Rule(
        RuleText(
            code="SB707",
            name="crop() refuses a positive length",
            kind="crash",
            looks_for="ValueError: Calling `crop` with a positive value",
            cause="In 4.48 to 5.2 crop(n) keeps the first n tokens. In 5.23 the argument is "
            "the number of tokens to remove, as a negative number, and a positive one raises "
            "ValueError. Affected: custom models and decoding loops that shorten a cache.",
            remedy="Pass the number of tokens to remove as a negative number, and only if "
            "there are any: crop(0) removes everything in 4.48.",
            example="surplus = cache.get_seq_length() - wanted\n"
            "if surplus > 0:\n    cache.crop(-surplus)",
            releases="5.23.0",
            references=("transformers/cache_utils.py",),
        ),
        _crop,
    ),
    Rule(
        RuleText(
            code="SB708",
            name="an empty cache counts as true",
            kind="silent",
            looks_for="code of the model that tests the truth value of its cache, if decoding "
            "differs from the reference or from one forward",
            cause="In 4.48 `bool(DynamicCache())` is False. From 4.57 on generate() passes "
            "DynamicCache(config=…), whose length is the number of layers, so even an empty cache "
            "is true. Code with `if past_key_values:` then treats the prompt as a continuation "
            "and feeds only its last token. Affected: custom models with such a test.",
            remedy="Test the number of tokens: `get_seq_length() > 0`.",
            example="if past_key_values is not None and past_key_values.get_seq_length() > 0: ...",
            releases="4.57.6, and 5.1.0 and later. Not 5.0.0 (measured here).",
            references=("https://github.com/openvla/openvla/issues/348",),
        ),
        _cache_truth,
    ),
    Rule(
        RuleText(
            code="SB709",
            name="a layer of the library ignores `past_key_value`",
            kind="silent",
            looks_for="a call with the keyword past_key_value in the model's code, if decoding "
            "differs from the reference or from one forward",
            cause="The keyword of the library's layers was renamed to past_key_values. 4.57 "
            "still accepts the old name. Since 5.0 the old name disappears in `**kwargs` without "
            "an exception: the cache stays empty, and every token is decoded without its past. "
            "Affected: custom models that call a layer of the library with `past_key_value=`.",
            remedy="Use the name in the layer's signature.",
            example="takes = inspect.signature(LlamaDecoderLayer.forward).parameters\n"
            'name = "past_key_values" if "past_key_values" in takes else "past_key_value"\n'
            "layer(hidden_states, **{name: cache})",
            releases="past_key_value: works up to 4.57, ignored from 5.0.0 on",
            references=("transformers/models/llama/modeling_llama.py",),
        ),
        _past_key_value,
    ),
    Rule(
        RuleText(
            code="SB710",
            name="the two forms of a gated delta-net round differently",
            kind="rounding",
            looks_for="prefill and decode that differ from one forward and agree in float64, in a "
            "cell whose prompt ran chunk_gated_delta_rule and whose first decoded token ran "
            "recurrent_gated_delta_rule",
            cause="A prompt is computed with the chunked form of the delta rule, which solves "
            "a triangular system for each chunk. A single token is computed with the recurrent "
            "form. Both are the same function, summed in a different order. The state carries the "
            "difference on, so it is larger than that of attention. Affected: everyone who "
            "compares cached decoding with a full forward of such a model.",
            remedy="None is needed. Compare decoding of such a model with decoding. In "
            "bfloat16 expect differences in the second digit.",
            releases="All that have such models: qwen3_next from 4.57 on, qwen3_5, olmo_hybrid",
            references=("transformers/models/qwen3_next/modeling_qwen3_next.py",),
        ),
        _formulations,
    ),
    Rule(
        RuleText(
            code="SB711",
            name="the model leaves state behind that changes its next forward",
            kind="silent",
            looks_for="a first prompt that, run again after all prompts and after generate(), gives "
            "other bytes than the first time, and gives the first ones again once a buffer or an "
            "attribute of a module is as it was before. A model that draws random numbers is not "
            "meant: it gives other bytes at every forward",
            cause="A module keeps something between forwards. From 5.0 to 5.9 a rope of type "
            "`dynamic` that generate() scaled for a long text stays scaled: `inv_freq` is not reset "
            "for the short text that comes next. In custom models it is a cache, a counter or a "
            "table in an attribute. Each answer is then right by itself, and depends on what was "
            "asked before.",
            remedy="In custom code, keep nothing in modules during a forward: pass it on, or compute "
            "it from the arguments. For a dynamic rope use 4.57 or a release after 5.9, or give "
            "the rotary module its buffer back between texts.",
            example="rope = model.model.rotary_emb\n"
            'rope.register_buffer("inv_freq", rope.original_inv_freq, persistent=False)',
            releases="dynamic rope: 5.0 to 5.9. Custom models: any release.",
            references=("transformers/modeling_rope_utils.py",),
        ),
        _left_behind,
    ),
)
