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
    return (
        f"{relation.relation} ({relation.case}): logits differ by up to "
        f"{relation.distance.max_abs:.2g}, and by {relation.promoted.max_abs:.2g} in float64"
    )


def _broken_chunks(case: Case) -> Iterator[Sighting]:
    """Find chunks that ignore the recurrent state while single-token decoding keeps it."""
    if not _has_delta_net(case.capture):
        return
    broken = list(case.broken(*_CHUNKED_RELATIONS))
    if broken and not list(case.broken("full forward = prefill + decode")):
        yield Sighting("multi-token forward with a cache", tuple(map(_distances, broken)))


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
    relations = list(case.standing(Standing.SHRINKS, "full forward = prefill + decode"))
    if relations:
        ran = f"the prompt ran {chunked[0]}, one token behind it {min(stepped)}"
        yield Sighting("gated delta rule", (ran, *map(_distances, relations)))


_CHUNK = re.compile(r"chunk_gated_delta_rule$")
_RECURRENT = re.compile(r"recurrent_gated_delta_rule$")


def _broken_cached_forward(case: Case) -> Iterator[Sighting]:
    """Find a cached path that computes a different function, unless a narrower rule applies."""
    if list(_broken_chunks(case)) or _is_not_causal(case):
        return
    broken = [r for r in case.broken(*_CACHED_RELATIONS) if not r.note]
    if broken:
        yield Sighting("forward with a cache", tuple(map(_distances, broken)))


def _broken_padding(case: Case) -> Iterator[Sighting]:
    names: list[RelationName] = ["left padding", "right padding", "batch size"]
    if _is_not_causal(case):
        names.remove("right padding")
    broken = [r for r in case.broken(*names) if not r.note]
    if broken:
        yield Sighting("padded batch", tuple(map(_distances, broken)))


def _broken_causality(case: Case) -> Iterator[Sighting]:
    broken = [relation for relation in case.broken("causality") if not relation.note]
    if broken:
        yield Sighting("causality", tuple(map(_distances, broken)))


def _decoding_change(case: Case) -> str | None:
    """Return how decoding differs from the reference or a full forward; None if it does not."""
    if case.first() in ("decode", "greedy"):
        return "decoding through the cache is the first thing that differs from the reference"
    if case.failure is not None and case.failure.phase.startswith("greedy"):
        is_named = any(list(check(case)) for check in _NAMED_ERRORS)
        return None if is_named else case.exception_lines()[0]
    broken = next(case.broken(*_CACHED_RELATIONS), None)
    return _distances(broken) if broken is not None else None


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
            name="the cache object has lost this attribute",
            kind="crash",
            looks_for="AttributeError on a …Cache object",
            cause="Caches became lists of layers: key_cache, value_cache, seen_tokens and "
            "get_usable_length went after 4.53, to_legacy_cache and from_legacy_cache in 5.0, "
            "get_max_cache_shape in 5.23; get_max_length came and went.",
            remedy="Use update() and get_seq_length(), which every release has; read tensors through "
            "cache.layers[i].keys where there are layers.",
            example="past = cache.get_seq_length() if cache is not None else 0\n"
            'keys = cache.layers[i].keys if hasattr(cache, "layers") else cache.key_cache[i]',
            releases="key_cache: through 4.53; layers: from 4.57; legacy tuples: through 4.57",
            references=("transformers/cache_utils.py",),
        ),
        _attribute,
    ),
    Rule(
        RuleText(
            code="SB702",
            name="the cache is no longer a tuple of tuples",
            kind="crash",
            looks_for="TypeError: '…Cache' object is not subscriptable; or 'tuple' object has no "
            "attribute of a cache",
            cause="5.0 removed __getitem__ from caches and yields three values per layer when it is "
            "iterated; legacy tuples are refused by the library's classes in every release of the "
            "grid.",
            remedy="Use the Cache API: cache.update(k, v, layer_idx) and cache.get_seq_length().",
            example="key, value = cache.update(key, value, self.layer_idx)",
            releases="subscripts: through 4.57; iterating in pairs: through 4.57",
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
            name="a chunk of several tokens ignores the recurrent state",
            kind="silent",
            looks_for="a model with gated delta-net layers where cached forwards of several tokens "
            "differ from one forward, in float64, too, while single-token decoding agrees",
            cause="The layer used its conv and recurrent states only if the sequence length was 1; "
            "a longer chunk started from zero.",
            remedy="Use 5.9 or later; before that feed cached tokens one at a time (no chunked "
            "prefill, no assisted decoding, no reuse of a prefix cache).",
            releases="qwen3_next 4.57 to 5.6, qwen3_5 5.2 to 5.6; right from 5.9",
            references=("https://github.com/huggingface/transformers/pull/45513",),
        ),
        _broken_chunks,
    ),
    Rule(
        RuleText(
            code="SB704",
            name="decoding through the cache computes another function than one forward",
            kind="silent",
            looks_for="prefill and decode, a split prefill or a verified chunk that differs from one "
            "forward, and stays different in float64; silent where a rope depends on length, which "
            "differs by design, and where rows depend on later tokens (SB706), as no decoding can "
            "then agree",
            cause="Either the cache loses, repeats or misplaces something: a keyword that the layer "
            "swallows (past_key_value / past_key_values), an empty cache taken for a full one, "
            "positions or masks counted from the wrong place, a state that is not handed on. Or the "
            "class has one formula for many tokens and another for one, and they are not the same "
            "function: the forward may be the one that is wrong (mamba2 in 4.48).",
            remedy="Compare the tables of the relation on the model's page: the first layer and "
            "position that part. In own code: pass the cache under the name that the layer's "
            "signature has, and ask get_seq_length() > 0 instead of the cache's truth value.",
            releases="differs by model; stock models that this project found: docs/found.md",
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
            name="padding or batching changes the real rows",
            kind="silent",
            looks_for="a row whose logits differ between a padded or larger batch and itself alone, "
            "in float64, too; right padding is left out where rows depend on later tokens anyway "
            "(SB706)",
            cause="Padding leaks: it enters a convolution, a recurrent state or a router, positions "
            "are counted over it, or the mask is ignored (rwkv). Where the relation is that of the "
            "batch size, rows mix: a step that drops or broadcasts an axis (falcon_h1).",
            remedy="Feed rows of equal length without padding, or a release in which it holds.",
            releases="differs by model; docs/found.md",
            references=("https://github.com/huggingface/transformers/issues/46873",),
        ),
        _broken_padding,
    ),
    Rule(
        RuleText(
            code="SB706",
            name="later tokens change earlier rows",
            kind="silent",
            looks_for="rows before a changed token that differ, in float64, too",
            cause="The causal mask leaks, a sum runs over the wrong axis (zamba2's decay between "
            "chunks through 5.2), or a table is computed from the whole sequence.",
            remedy="See the positions table of the relation on the model's page.",
            releases="differs by model; docs/found.md",
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
            cause="5.23 takes only negative lengths: the number of tokens to drop.",
            remedy="Remove what is too much, by a negative number, and call it only then: crop(0) "
            "removes everything in 4.48.",
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
            looks_for="code of the model that tests the truth of its cache, where decoding differs "
            "from the reference or from one forward",
            cause="bool(DynamicCache()) is False in 4.48. From 4.57 on generate() hands over "
            "DynamicCache(config=…), whose length is the number of layers: an empty one is true, and "
            "the prompt is taken for a continuation.",
            remedy="Ask for the number of tokens: get_seq_length() > 0.",
            example="if past_key_values is not None and past_key_values.get_seq_length() > 0: ...",
            releases="4.57.6, 5.1.0 and later; not 5.0.0, as measured here",
            references=("https://github.com/openvla/openvla/issues/348",),
        ),
        _cache_truth,
    ),
    Rule(
        RuleText(
            code="SB709",
            name="a library layer swallows past_key_value",
            kind="silent",
            looks_for="a call with the keyword past_key_value in the model's code, where decoding "
            "differs from the reference or from one forward",
            cause="The layers' parameter was renamed to past_key_values; the old keyword disappears "
            "in **kwargs without an error, the cache stays empty and every token is decoded without "
            "its past.",
            remedy="Pass the name that the signature has.",
            example="takes = inspect.signature(LlamaDecoderLayer.forward).parameters\n"
            'name = "past_key_values" if "past_key_values" in takes else "past_key_value"\n'
            "layer(hidden_states, **{name: cache})",
            releases="past_key_value: through 4.57; 5.0.0 and later swallow it",
            references=("transformers/models/llama/modeling_llama.py",),
        ),
        _past_key_value,
    ),
    Rule(
        RuleText(
            code="SB710",
            name="a gated delta-net has two formulations, and they round differently",
            kind="rounding",
            looks_for="prefill and decode that differ from one forward and agree in float64, in a cell "
            "whose prompt ran chunk_gated_delta_rule and whose first decoded token ran "
            "recurrent_gated_delta_rule",
            cause="Several tokens go through the chunked form of the delta rule, which solves a "
            "triangular system per chunk, one token through the recurrent form. They are the same "
            "function summed in another order, and the state carries the difference on, so that it is "
            "larger than that of attention.",
            remedy="None is needed: judge decoding of such a model against decoding, and in "
            "bfloat16 expect it in the second digit.",
            releases="all that have such models (qwen3_next from 4.57, qwen3_5, olmo_hybrid)",
            references=("transformers/models/qwen3_next/modeling_qwen3_next.py",),
        ),
        _formulations,
    ),
)
