"""Smaller configs of the same kind: fewer layers, narrower ones, a smaller vocabulary.

This module uses neither torch nor transformers. A config is plain data, as ``to_dict`` gives it, and
sizes are known by the names that transformers uses for them. What a code path depends on is kept: the
dimension of a head, rope, windows, activations, and which kinds of layers follow each other. A name
that is not known stays as it is. Whether the result is a model, and of the same kind, is for
model.small to find out.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Config = dict[str, Any]
KeptLayers = dict[int, tuple[int, ...]]
"""Number of layers of a stack of layers -> the indices of those that are kept."""

MAX_FIRST_LAYERS = 8
"""Layers up to which the first ones are kept just as they follow each other."""
_MIN_WIDTH = 64
_VOCABULARY = 512
_RESERVED_IDS = 10
"""Ids below are never among seeded ones (model.inputs.seeded_ids), so they serve as special tokens."""
_STEP = 8
"""Inner sizes that do not divide are rounded to a multiple of it."""
_GROUP = 4
"""A divided inner size is a multiple of it: products of experts take whole groups of 16 bytes."""

LAYERS = re.compile(
    r"(num_hidden_layers|n_layers?|num_layers|num_(en|de)coder_layers|(en|de)coder_layers|depth"
    r"|num_blocks)"
)
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim", "emb_dim", "embed_dim")
_TIED = re.compile(
    r"lru_width|attention_hidden_size|word_embed_proj_dim|embedding_size|d_embed|d_inner"
    r"|(mamba_|n_mamba_|mamba_num_|mamba_n_)heads|mamba_d_ssm"
)
"""Sizes that are a multiple of the hidden size, and heads of a state space, whose width is one."""
_INNER = re.compile(
    r"\w*intermediate_size\w*|(\w+_)?ffn_(hidden_)?(dim|size)|d_?ff|n_inner|hidden_dim"
    r"|inner_(dim|size)|mlp_(hidden_size|dim)"
)
HEADS = re.compile(
    r"(?P<group>linear_|index_)?(num|n)_((attention|key_value|kv|query|key|value|global_key_value)_)?"
    r"heads?|((en|de)coder_)?attention_heads"
)
_EXPERTS = re.compile(r"(moe_)?(num|n)_(local_|routed_)?experts")
_PER_TOKEN = re.compile(r"num_experts_per_tok(en)?|moe_top_?k|moe_k|num_selected_experts")
"""Not ``top_k``: 4.x writes an argument of generate() under that name into every config."""
_SPECIAL = re.compile(r"\w*token_(id|ids|index)|(eos|bos|pad|sep)_id|suppress_tokens")
_LAYER_INDICES = re.compile(r"\w*(layer|block|attn)s?_(ids|indices|indexes|idx|idxs)|\w+_layers")
_FROM_THE_START = re.compile(r"first_k_dense_replace|max_window_layers|num_dense_layers")
_FROM_THE_END = re.compile(r"num_kv_shared_layers")
_OF_HIDDEN = re.compile(r"out_hidden_size|projection_dim|text_hidden_size|lm_hidden_size")
"""Sizes of another part that are the hidden size of the text part."""


class Plan(NamedTuple):
    """One way to make a config smaller."""

    name: str
    config: Config


class _Factors(NamedTuple):
    """Divisors of the sizes of one part of a config."""

    width: int = 1
    heads: int | None = 1
    """None: each group of heads has its own."""
    head_dim: int | None = None
    """Is set where the config has none, as the width no longer tells it."""


def kept_layers(kinds: Sequence[Hashable]) -> tuple[int, ...]:
    """Return the indices of layers among which there is every kind, in its order; at least two.

    They are the first layers if those hold every kind soon, else the first one of each kind.
    """
    first_of_kind = {kind: index for index, kind in reversed(list(enumerate(kinds)))}
    firsts = sorted(first_of_kind.values())
    n_first = max(firsts[-1] + 1, 2) if firsts else 0
    if n_first <= MAX_FIRST_LAYERS:
        return tuple(range(min(n_first, len(kinds))))
    return tuple(firsts)


def plans(config: Config, kept: KeptLayers) -> Iterator[Plan]:
    """Yield smaller configs, the one that keeps most of the code's paths first."""
    for name in ("width and heads apart", "width and heads together", "fewer layers"):
        smaller = copy.deepcopy(config)
        texts = [part for part in _parts(smaller) if _has_tokens(part) and hidden_size(part)]
        hidden = {hidden_size(part) for part in texts}
        for part in texts:
            _narrow(part, _factors(part, name))
        _narrow_outside(smaller, hidden, {hidden_size(part) for part in texts})
        for part in _parts(smaller):
            keep_layers(part, kept)
            fewer_experts(part)
        fewer_tokens(smaller)
        yield Plan(name, smaller)


def _has_tokens(part: Config) -> bool:
    """Return True for a part with a vocabulary whose sizes are its own: those of a tower of timm follow from its name."""
    return "vocab_size" in part and "model_args" not in part


def _parts(config: Config) -> list[Config]:
    nested = [
        value for value in config.values() if isinstance(value, dict) and "model_type" in value
    ]
    return [config, *(part for value in nested for part in _parts(value))]


def hidden_size(part: Config) -> int:
    """Return the hidden size; 0 for a part without one."""
    return next((int(part[name]) for name in _HIDDEN if is_size(part.get(name))), 0)


def is_size(value: Any) -> bool:
    """Return True for a whole number above 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _factors(part: Config, plan: str) -> _Factors:
    if plan == "fewer layers":
        return _Factors()
    heads = _head_counts(part).get("", [])
    if plan == "width and heads together":
        return _Factors(*[_common_factor(part, heads)] * 2)
    head_dim = _head_dim(part)
    n_heads = max(heads, default=1) // _factor_of_heads(heads)
    factor = _factor_of_width(part, multiple_of=n_heads) or _factor_of_width(part, multiple_of=1)
    return _Factors(factor or 1, None, head_dim)


def _head_dim(part: Config) -> int | None:
    """Return the dimension of a head that follows from the width; None if the config names it."""
    named = ("head_dim", "d_kv", "attention_head_dim", "kv_channels", "qk_nope_head_dim")
    n_heads = next((part[k] for k in ("num_attention_heads", "n_head") if is_size(part.get(k))), 0)
    if any(is_size(part.get(name)) for name in named) or not n_heads:
        return None
    return hidden_size(part) // int(n_heads)


def _head_counts(part: Config) -> dict[str, list[int]]:
    """Return the numbers of heads by group: of attention, and of linear attention."""
    counts: dict[str, list[int]] = {}
    for name, value in part.items():
        match = HEADS.fullmatch(name)
        if match and is_size(value) and not _of_state_space(part, name):
            counts.setdefault(match["group"] or "", []).append(value)
    return counts


def _of_state_space(part: Config, name: str) -> bool:
    """Return True for mamba2's ``num_heads``: they share out the width, as ``expand`` tells it."""
    return name == "num_heads" and {name, "expand"} <= part.keys()


def _factor_of_heads(counts: Sequence[int]) -> int:
    """Return the divisor that leaves two of the fewest heads, or one where there is only one."""
    counts = [n for n in counts if n > 1] if max(counts, default=1) > 1 else []
    if not counts:
        return 1
    common = math.gcd(*counts)
    return next(k for k in range(max(min(counts) // 2, 1), 0, -1) if common % k == 0)


def _tied_sizes(part: Config) -> list[int]:
    sizes = [value for name, value in part.items() if is_size(value) and _TIED.fullmatch(name)]
    if _of_state_space(part, "num_heads") and is_size(part["num_heads"]):
        sizes.append(part["num_heads"])
    return sizes


def _factor_of_width(part: Config, multiple_of: int) -> int | None:
    hidden, tied = hidden_size(part), _tied_sizes(part)
    n_groups = next((part[k] for k in ("mamba_n_groups", "n_groups") if is_size(part.get(k))), 1)
    common = math.gcd(hidden, *tied)
    for factor in range(max(hidden // _MIN_WIDTH, 1), 0, -1):
        fits = common % factor == 0 and (hidden // factor) % (2 * multiple_of) == 0
        if fits and all(n // factor % n_groups == 0 for n in tied):
            return factor
    return None


def _common_factor(part: Config, heads: Sequence[int]) -> int:
    """Return one divisor for width and heads; a single key-value head stays single."""
    shared = [n for n in heads if n > 1]
    common = math.gcd(hidden_size(part), *_tied_sizes(part), *shared)
    enough = max(min([*shared, *_tied_sizes(part), hidden_size(part)]) // 2, 1)
    return next(k for k in range(min(enough, common), 0, -1) if common % k == 0)


def _narrow(part: Config, factors: _Factors) -> None:
    groups = _head_counts(part)
    for name, value in list(part.items()):
        head = HEADS.fullmatch(name)
        if name in _HIDDEN or _TIED.fullmatch(name) or _of_state_space(part, name):
            part[name] = _divided(value, factors.width)
        elif _INNER.fullmatch(name):
            part[name] = _narrower(value, factors.width)
        elif head:
            group = head["group"] or ""
            own = factors.heads is None or bool(group)
            factor = _factor_of_heads(groups.get(group, [])) if own else factors.heads
            part[name] = value if value == 1 else _divided(value, factor or 1)
    if factors.head_dim is not None:
        part["head_dim"] = factors.head_dim


def _divided(value: Any, factor: int) -> Any:
    return value // factor if is_size(value) and value % factor == 0 else value


def _narrower(value: Any, factor: int) -> Any:
    """Return an inner size, or one of each layer; one that does not divide well is rounded."""
    if isinstance(value, list):
        return [_narrower(size, factor) for size in value]
    if not is_size(value) or factor == 1:
        return value
    is_whole = value % (_GROUP * factor) == 0
    return value // factor if is_whole else max(value // factor // _STEP, 1) * _STEP


def _narrow_outside(config: Config, before: set[int], after: set[int]) -> None:
    """Give the parts without tokens the new hidden size of the text."""
    if len(before) != 1 or len(after) != 1:
        return
    for part in _parts(config):
        for name, value in part.items():
            if _OF_HIDDEN.fullmatch(name) and value in before:
                part[name] = next(iter(after))


def keep_layers(part: Config, kept: KeptLayers) -> None:
    """Keep only some layers, in the lists of one entry per layer and in those of indices too."""
    counts = [value for name, value in part.items() if LAYERS.fullmatch(name) and is_size(value)]
    for name, value in list(part.items()):
        if name.startswith("rope") or _SPECIAL.fullmatch(name):
            continue
        if LAYERS.fullmatch(name) and is_size(value):
            part[name] = len(_indices(value, kept))
        elif isinstance(value, (list, tuple)) and len(value) in counts:
            part[name] = [value[index] for index in _indices(len(value), kept)]
        elif counts and _LAYER_INDICES.fullmatch(name) and isinstance(value, (list, tuple)):
            part[name] = _new_indices(value, _indices(max(counts), kept))
        elif counts and isinstance(value, int) and _FROM_THE_START.fullmatch(name):
            part[name] = sum(index < value for index in _indices(max(counts), kept))
        elif counts and isinstance(value, int) and _FROM_THE_END.fullmatch(name):
            shared = max(counts) - value
            part[name] = sum(index >= shared for index in _indices(max(counts), kept))


def _indices(count: int, kept: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    return kept.get(count) or tuple(range(min(count, max([2, *map(len, kept.values())]))))


def _new_indices(old: Sequence[Any], kept: tuple[int, ...]) -> list[Any]:
    if not all(isinstance(index, int) for index in old):
        return list(old)
    return [new for new, index in enumerate(kept) if index in old]


def fewer_experts(part: Config) -> None:
    """Keep as many experts as a choice among them needs."""
    n_groups, n_chosen_groups = (
        part[name] if is_size(part.get(name)) else 1 for name in ("n_group", "topk_group")
    )
    per_token = [value for name, value in part.items() if _PER_TOKEN.fullmatch(name)]
    chosen = max((value for value in per_token if is_size(value)), default=2)
    needed = max(4, 2 * chosen, 2 * n_groups, -(-chosen * n_groups // n_chosen_groups))
    needed = -(-needed // n_groups) * n_groups
    for name, value in part.items():
        if _EXPERTS.fullmatch(name) and is_size(value):
            part[name] = min(value, needed)


_VOCABULARIES = ("vocab_size", "decoder_vocab_size", "vocab_size_per_layer_input", "n_vocab")
UNPADDED = "unpadded_vocab_size"
"""Tokens that logits have, of a vocabulary with some more so that it divides."""


def fewer_tokens(config: Config) -> None:
    """Make every vocabulary smaller, and give special tokens ids that it still has."""
    parts = _parts(config)
    sizes = [part["vocab_size"] for part in parts if is_size(part.get("vocab_size"))]
    if not sizes or min(sizes) <= _VOCABULARY:
        return
    for part in parts:
        for name in _VOCABULARIES:
            if is_size(part.get(name)):
                part[name] = _VOCABULARY
        if is_size(part.get(UNPADDED)):
            part[UNPADDED] = _VOCABULARY - _RESERVED_IDS
    ids = [value for part in parts for value in _special_ids(part)]
    free = [n for n in range(_RESERVED_IDS - 1, 0, -1) if n not in ids]
    new: dict[int, int] = {}
    for value in dict.fromkeys(n for n in ids if n >= _VOCABULARY):
        new[value] = free.pop(0) if free else _VOCABULARY - 1 - len(new)
    for part in parts:
        for name, value in part.items():
            if _SPECIAL.fullmatch(name):
                part[name] = _replaced(value, new)


def _special_ids(part: Config) -> list[int]:
    values = [value for name, value in part.items() if _SPECIAL.fullmatch(name)]
    flat = [n for value in values for n in (value if isinstance(value, list) else [value])]
    return [n for n in flat if isinstance(n, int)]


def _replaced(value: Any, new: Mapping[int, int]) -> Any:
    if isinstance(value, list):
        return [_replaced(entry, new) for entry in value]
    return new.get(value, value) if isinstance(value, int) else value
