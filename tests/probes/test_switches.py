"""Variants of a config: its switches are those that the code reads, and few variants have every pair of values."""

import sys
from itertools import combinations, product
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from samebits_probe.model import switches
from samebits_probe.model.switches import Choice, Switch, Value

CONFIG = {
    "model_type": "one",
    "hidden_act": "silu",
    "attention_bias": True,
    "never_read_bias": True,
    "use_cache": True,
    "attention_dropout": 0.0,
    "sliding_window": None,
    "position_kind": "absolute",
    "rope_scaling": None,
    "max_position_embeddings": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "tie_word_embeddings": False,
    "vision_config": {"model_type": "two", "qkv_bias": True, "tie_word_embeddings": True},
    "quantization": {"bits": True},
}
SOURCES = {
    "one": """
        ACT2FN[config.hidden_act]; config.attention_bias; config.use_cache; config.sliding_window is not None
        if config.position_kind == "relative" or config.position_kind in ("learned", "none"): ROPE_INIT_FUNCTIONS
    """,
    "two": "nn.Linear(d, d, bias=config.qkv_bias)",
}


def names():
    found = switches.switches(CONFIG, lambda name: SOURCES.get(name, ""))
    return {
        ".".join((*each.path, *value.fields)): [v.name for v in each.values[1:]]
        for each in found
        for value in each.values[1:2]
    }


def test_what_the_code_reads_is_a_switch_and_nothing_else():
    assert names() == {
        "hidden_act": ["hidden_act='gelu'"],
        "attention_bias": ["attention_bias=False"],
        "sliding_window": ["sliding_window=8"],
        "position_kind": [f"position_kind={word!r}" for word in ("learned", "none", "relative")],
        "rope_scaling": ["rope linear", "rope dynamic", "rope yarn", "rope llama3"],
        "num_key_value_heads": ["num_key_value_heads=1", "num_key_value_heads=8"],
        "tie_word_embeddings": ["tie_word_embeddings=True"],
        "vision_config.qkv_bias": ["qkv_bias=False"],
    }


def test_a_window_that_the_code_needs_is_made_wide_instead_of_none():
    config = {"model_type": "one", "sliding_window": 8}
    for source, other in (
        ("config.sliding_window", "sliding_window=64"),
        ("config.sliding_window is None", "sliding_window=None"),
    ):
        (found,) = switches.switches(config, lambda _, text=source: text)
        assert found.values[1].name == other


def test_a_kind_of_rope_keeps_its_theta_and_stretches_a_text_that_is_shorter_than_the_prompts():
    config = {"model_type": "one", "rope_parameters": {"rope_type": "yarn", "rope_theta": 7.0}}
    (found,) = switches.switches(config, lambda _: "rope_type")
    kinds = [value.fields["rope_parameters"] for value in found.values[1:]]
    assert [kind["rope_type"] for kind in kinds] == ["linear", "dynamic", "llama3"]
    assert {kind["rope_theta"] for kind in kinds} == {7.0}
    sections = {"rope_type": "default", "mrope_section": [2, 3, 3]}
    assert not switches.switches(config | {"rope_parameters": sections}, lambda _: "rope_type")


def rows_of(all_switches, refused=frozenset()):
    """Return the rows of a class that refuses some pairs: of these it takes the second value back."""
    cover, rows = switches.Cover(all_switches), []
    while (row := cover.row()) is not None and len(rows) < 1000:
        lost = switches.pairs(row) & refused
        ran = tuple(0 if any(n == b for _, (b, _) in lost) else v for n, v in enumerate(row))
        cover.add(ran, lost)
        rows.append(ran)
    return rows


def test_a_pair_that_a_class_refuses_takes_no_other_pair_with_it():
    all_switches = [Switch((), tuple(Value(f"{n}={v}", {}) for v in range(2))) for n in range(5)]
    refused = {((1, 1), (3, 1))}
    ran = {
        pair for row in [(0,) * 5, *rows_of(all_switches, refused)] for pair in switches.pairs(row)
    }
    assert ran == switches._all_pairs([2] * 5) - refused


@given(st.lists(st.integers(2, 5), max_size=7))
def test_the_rows_have_every_pair_and_are_the_same_again(sizes):
    all_switches = [
        Switch((), tuple(Value(f"{n}={v}", {}) for v in range(size)))
        for n, size in enumerate(sizes)
    ]
    rows = rows_of(all_switches)
    assert len(set(rows)) == len(rows)
    assert rows == rows_of(all_switches)
    every = [*rows, (0,) * len(sizes)]
    for a, b in combinations(range(len(sizes)), 2):
        assert {(r[a], r[b]) for r in every} == {*product(range(sizes[a]), range(sizes[b]))}
    for n, size in enumerate(sizes):
        assert {r[n] for r in every} == {*range(size)}
    assert len(rows) < 3 * max(sizes, default=0) ** 2 + 10  # far fewer than all of them


def test_a_row_changes_a_copy_of_the_config_and_says_what():
    all_switches = switches.switches(CONFIG, lambda name: SOURCES.get(name, ""))
    row = tuple(int(bool(switch.path)) for switch in all_switches)
    (choice,) = switches.chosen(all_switches, row)
    assert choice.name == "vision_config.qkv_bias=False"
    changed = switches.changed(CONFIG, [choice, Choice((), Value("x", {"vocab_size": 7}))])
    assert changed["vision_config"] == CONFIG["vision_config"] | {"qkv_bias": False}
    assert changed["vocab_size"] == 7
    assert CONFIG["vision_config"]["qkv_bias"]
