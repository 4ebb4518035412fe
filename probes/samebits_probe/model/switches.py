"""Switches of a config, and rows that cover pairs of their values.

A switch is a field that chooses a path of the code: a yes or no, a word that the code compares, a window, a kind of
rope. This module uses neither torch nor transformers. A config is plain data, as ``to_dict`` gives it. Whether the
class takes a value is for jobs.config_variants to find out.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, NamedTuple

from samebits_probe.model import shrink
from samebits_wire.config_fields import WITHOUT_EFFECT

if TYPE_CHECKING:
    from samebits_probe.model.shrink import Config

MAX_SWITCHES = 16
"""Switches of one config; the first ones, in the order of its fields."""
_WINDOW = 8
"""Shorter than the prompts of a tiny model."""
_WIDE = 64
"""Longer than they are."""
_POSITIONS = 32
"""Longest text of the original model, for kinds of rope that stretch it: shorter than the long prompt."""
_TRIES = 40
"""Random rows of which the one is taken that covers most pairs."""

_NO_SWITCH = re.compile(
    rf"{WITHOUT_EFFECT}|\w*(pretrained|timm|fast|quant)\w*|add_cross_attention|cross_attention_hidden_size|model_type|training"
)
"""Fields that choose no path of a forward, or one that a CPU does not have."""
_TIED = "tie_word_embeddings"
"""PreTrainedModel reads it for every class."""
_ACTIVATION = re.compile(
    r"hidden_act(ivation)?|activation(_function)?|act_fn|feat_extract_activation"
)
_OTHER_ACTIVATION = {"silu": "gelu"}
_WINDOWS = re.compile(r"sliding_window(_size)?|attention_window|window_size|local_attention_window")
_CAPS = {
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
    "clip_qkv": 2.0,
    "partial_rotary_factor": 0.5,
}
"""Numbers that a config may leave open, with which the code does more."""
_WORD = r"[\"']([\w.-]+)[\"']"


class Value(NamedTuple):
    """One value of a switch: what it is called, and the fields that it sets."""

    name: str
    fields: Config


_AS_IT_IS = Value("as it is", {})
"""The value that a config has; it sets nothing."""


class Switch(NamedTuple):
    """A switch of one part of a config; the first value is the one that the config has."""

    path: tuple[str, ...]
    """Keys that lead to the part; () for the whole config."""
    values: tuple[Value, ...]


class Choice(NamedTuple):
    """A value that a part of a config gets."""

    path: tuple[str, ...]
    value: Value

    @property
    def name(self) -> str:
        """Such as ``text_config.attention_bias=True``."""
        return ".".join((*self.path, self.value.name))


Row = tuple[int, ...]
"""The index of a value for each switch."""
Pair = tuple[tuple[int, int], tuple[int, int]]
"""Two switches by their place, each with the index of a value."""


def switches(config: Config, source_of: Callable[[str], str]) -> list[Switch]:
    """Return the switches of a config and its parts.

    ``source_of`` returns the code of the model of a model_type; a field that this code does not read is no switch.
    """
    of_parts = [
        Switch(path, (_AS_IT_IS, *values))
        for path, part in _parts(config)
        for source in [source_of(str(part.get("model_type", "")))]
        for values in _values(part, source)
        if values
    ]
    return of_parts[:MAX_SWITCHES]


def _parts(config: Config, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Config]]:
    yield path, config
    for name, value in config.items():
        if isinstance(value, dict) and value.get("model_type"):
            yield from _parts(value, (*path, name))


def _values(part: Config, source: str) -> Iterator[list[Value]]:
    for name, value in part.items():
        if _NO_SWITCH.fullmatch(name) or not _is_read(name, part, source):
            continue
        yield [
            Value(f"{name}={choice!r}", {name: choice}) for choice in _others(name, value, source)
        ]
    if re.search(r"rope_type|ROPE_INIT_FUNCTIONS", source):
        yield _ropes(part)
    yield _key_value_heads(part)


def _is_read(name: str, part: Config, source: str) -> bool:
    if name == _TIED:
        return any("vocab_size" in inner for _, inner in _parts(part))
    return re.search(rf"\b{re.escape(name)}\b", source) is not None


def _others(name: str, value: Any, source: str) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if name in _CAPS:
        return [_CAPS[name]] if value is None or value == 1.0 else [None]
    if _WINDOWS.fullmatch(name):
        is_optional = re.search(rf"\b{name}\s+is\s+(not\s+)?None", source)
        return [_WINDOW if value is None else None if is_optional else _WIDE]
    if not isinstance(value, str):
        return []
    if _ACTIVATION.fullmatch(name):
        return [_OTHER_ACTIVATION.get(value, "silu")]
    return sorted(_compared(name, source) - {value})


def _compared(name: str, source: str) -> set[str]:
    """Return the words with which code compares a field, by itself or in a list."""
    field = rf"\b{re.escape(name)}\s*"
    words = {*re.findall(rf"{field}[!=]=\s*{_WORD}", source)}
    for listed in re.findall(rf"{field}(?:not\s+)?in\s*[\[({{]([^\])}}]*)", source):
        words |= {*re.findall(_WORD, listed)}
    return words


def _ropes(part: Config) -> list[Value]:
    """Return the kinds of rope that a part does not have, with numbers that its prompts reach."""
    key = "rope_parameters" if part.get("rope_parameters") else "rope_scaling"
    own = part.get(key) or {}
    has_kinds = any(isinstance(value, dict) for value in own.values())
    if key not in part or has_kinds or "mrope_section" in own:
        return []
    base = {name: own[name] for name in ("rope_theta", "partial_rotary_factor") if name in own}
    kinds: dict[str, Config] = {
        "linear": {"factor": 2.0},
        "dynamic": {"factor": 2.0},
        "yarn": {"factor": 4.0, "original_max_position_embeddings": _POSITIONS},
        "llama3": {
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": _POSITIONS,
        },
    }
    others = []
    for kind, numbers in kinds.items():
        if kind == own.get("rope_type", own.get("type")):
            continue
        fields: Config = {key: {**base, "rope_type": kind, **numbers}}
        if kind == "dynamic":
            fields["max_position_embeddings"] = _POSITIONS
        others.append(Value(f"rope {kind}", fields))
    return others


def _key_value_heads(part: Config) -> list[Value]:
    heads, own = part.get("num_attention_heads"), part.get("num_key_value_heads")
    if not (shrink.is_size(heads) and shrink.is_size(own)):
        return []
    counts = [n for n in (1, heads) if n != own]
    return [Value(f"num_key_value_heads={n}", {"num_key_value_heads": n}) for n in counts]


class Cover:
    """Rows of values, one after the other, until every pair of values is in one of them.

    Each is the one of some random rows that has most new pairs. The config as it is has its pairs already. Equal
    switches and equal refusals give equal rows.
    """

    def __init__(self, listed: Sequence[Switch]) -> None:
        self._sizes = [len(switch.values) for switch in listed]
        self._missing = _all_pairs(self._sizes) - pairs((0,) * len(listed))
        self._refused: set[Pair] = set()
        self._draw = random.Random(0)

    def row(self) -> Row | None:
        """Return the next row; None behind the last pair."""
        if not self._missing:
            return None
        wanted, draw = sorted(self._missing), self._draw
        tries = [_row(self._sizes, draw.choice(wanted), draw) for _ in range(_TRIES)]
        return max(tries, key=self._worth)

    def _worth(self, row: Row) -> tuple[bool, int, int]:
        new = pairs(row)
        return not new & self._refused, len(new & self._missing), -sum(map(bool, row))

    def add(self, row: Row, refused: Collection[Pair] = ()) -> None:
        """Take the pairs of a row that a model was made of, and those that its class refuses, as done."""
        self._refused.update(refused)
        self._missing -= pairs(row) | self._refused


def _row(sizes: Sequence[int], pair: Pair, draw: random.Random) -> Row:
    row = [*map(draw.randrange, sizes)]
    (a, of_a), (b, of_b) = pair
    row[a], row[b] = of_a, of_b
    return tuple(row)


def pairs(row: Row) -> set[Pair]:
    """Return the pairs of values of a row; of a single switch, its value with itself."""
    values = [*enumerate(row)]
    return {*combinations(values, 2)} if len(values) > 1 else {(each, each) for each in values}


def _all_pairs(sizes: Sequence[int]) -> set[Pair]:
    of_switches = [[(place, value) for value in range(size)] for place, size in enumerate(sizes)]
    if len(of_switches) == 1:
        return {(each, each) for each in of_switches[0]}
    return {pair for a, b in combinations(of_switches, 2) for pair in product(a, b)}


def chosen(listed: Sequence[Switch], row: Row) -> list[Choice]:
    """Return what a row changes of a config: the value of each switch that is not as it is."""
    return [
        Choice(switch.path, switch.values[index])
        for switch, index in zip(listed, row, strict=True)
        if index
    ]


def changed(config: Config, choices: Sequence[Choice]) -> Config:
    """Return a copy of a config with values of switches."""
    altered = copy.deepcopy(config)
    for path, value in choices:
        part = altered
        for key in path:
            part = part[key]
        part.update(copy.deepcopy(value.fields))
    return altered
