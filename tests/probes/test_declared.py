"""Declared arguments of forward: sizes and bounds of a config, names of a signature, masks."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from samebits_probe.model import declared
from samebits_probe.model.choice import NotFed, Parameter, Signature, lines_for, written
from samebits_probe.model.declared import Constant, Masked, Seeded, check_names, real_rows, resolved
from samebits_probe.model.series_shapes import shapes_of

CONFIG = SimpleNamespace(
    hidden_size=16,
    vocab_size=99,
    rope_theta=1e4,
    text_config=SimpleNamespace(d_model=24, to_dict=dict),
    attribute_map={"width": "hidden_size"},
)
SIGNATURE = Signature(
    (
        Parameter("protein_embeddings", required=True, annotation="torch.FloatTensor"),
        Parameter("coverage", required=True),
        Parameter("attention_mask"),
    )
)


def test_sizes_and_bounds_may_name_fields_of_the_config():
    plan = resolved({"shape": [2, "text_config.d_model"], "dtype": "float32"}, CONFIG)
    assert plan == Seeded((2, 24), "float32", -1, 1)
    plan = resolved({"shape": ["hidden_size"], "dtype": "int64", "high": "vocab_size"}, CONFIG)
    assert plan == Seeded((16,), "int64", 0, 99)
    assert resolved({"value": [1, 2], "dtype": "int32"}, CONFIG) == Constant([1, 2], "int32")


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (
            {"shape": ["hiden_size"], "dtype": "bool"},
            "no field hiden_size: did you mean hidden_size?",
        ),
        ({"shape": ["d_model"], "dtype": "bool"}, "did you mean text_config.d_model?"),
        ({"shape": ["rope_theta"], "dtype": "bool"}, "rope_theta is 10000.0, which is no size"),
        ({"shape": [1], "dtype": "int8", "high": 300}, "int8 has whole numbers from -128 to 127"),
        ({"shape": [1], "dtype": "int8", "high": 1.5}, "int8 has whole numbers"),
        (
            {"shape": [1], "dtype": "int64", "low": "vocab_size", "high": 9},
            "low is 99 and high is 9",
        ),
        ({"shape": [1 << 20, 1 << 20], "dtype": "bool"}, "has 1,099,511,627,776 elements"),
        ({"shape": [2, 3], "mask": ["left 3"]}, "pads 3 of 3 positions"),
        ({"shape": [2, 3], "mask": ["ones"] * 3}, "3 entries and the shape [2, 3] has 2 rows"),
        ({"shape": [], "mask": ["ones"]}, "needs a shape with a dimension"),
    ],
)
def test_what_does_not_fit_is_named(argument, text):
    with pytest.raises(NotFed) as caught:
        resolved(argument, CONFIG)
    assert text in str(caught.value)


def test_masks_are_ranges_of_ones():
    mask = resolved({"shape": [3, 9], "mask": ["left 2", "right 2", "zeros"]}, CONFIG)
    assert mask == Masked((3, 9), "int64", ((2, 9), (0, 7), (0, 0)))
    assert resolved({"shape": [3, 9], "mask": ["ones"]}, CONFIG).rows == ((0, 9),)


def test_a_misspelt_argument_is_named_with_its_place_and_the_nearest():
    places = {"": "matrix.yaml:3:5", "protien_embeddings": "matrix.yaml:4:9"}
    with pytest.raises(NotFed) as caught:
        check_names(["protien_embeddings", "coverage"], SIGNATURE, places, "the set", {})
    assert str(caught.value).startswith(
        "matrix.yaml:4:9: the set has protien_embeddings, which forward does not take: did you mean "
        "protein_embeddings?"
    )


def test_a_missing_argument_is_named_with_its_annotation_and_what_to_write():
    with pytest.raises(NotFed) as caught:
        check_names(["coverage"], SIGNATURE, {"": "matrix.yaml:3:5"}, "given.npz", {})
    assert str(caught.value) == (
        "matrix.yaml:3:5: forward needs protein_embeddings: torch.FloatTensor, which given.npz does "
        "not have: write {arguments: {protein_embeddings: {shape: [1, 12, hidden_size], dtype: "
        "float32}}}"
    )


def test_a_forward_of_any_keyword_takes_any_name():
    check_names(
        ["protein_embeddings", "coverage", "new"], SIGNATURE._replace(takes_any=True), {}, "", {}
    )


def test_the_lines_to_paste_follow_from_names_and_annotations():
    proposals = [
        ("special_tokens_mask", "", "{shape: [1, 12], mask: ones}"),
        ("token_type_ids", "", "{shape: [1, 12], dtype: int64, high: 2}"),
        ("positions", "Optional[torch.LongTensor]", "{shape: [1, 12], dtype: int64, high: 2}"),
        ("scaled", "bool | None", "false"),
        ("steps", "int", "1"),
        ("embeddings", "torch.Tensor", "{shape: [1, 12, hidden_size], dtype: float32}"),
    ]
    for name, annotation, text in proposals:
        assert written(Parameter(name, annotation=annotation)) == text
    assert lines_for([Parameter("x")], "d_model").splitlines() == [
        "inputs:",
        "  mine:",
        "    arguments:",
        "      x: {shape: [1, 12, d_model], dtype: float32}",
    ]


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8), min_size=1, max_size=4))
def test_real_rows_are_the_ones_of_a_mask_without_gaps(rows):
    rows = [row + [0] * (8 - len(row)) for row in rows]
    ranges = real_rows(rows)
    if ranges is None:
        has_gap = any("01" in "".join(map(str, row)).strip("0") for row in rows)
        assert has_gap or any(1 not in row for row in rows) or all(all(row) for row in rows)
        return
    rebuilt = [[int(start <= i < stop) for i in range(8)] for start, stop in ranges]
    assert rebuilt == rows


@given(
    st.sampled_from([*declared.INTEGERS, "float32", "bfloat16", "bool"]),
    st.integers(-300, 300),
    st.integers(-300, 300),
)
def test_seeded_bounds_fit_their_dtype_or_are_refused(dtype, low, high):
    argument = {"shape": [2], "dtype": dtype, "low": low, "high": high}
    try:
        plan = resolved(argument, CONFIG)
    except NotFed:
        least, after = declared.INTEGERS.get(dtype, (-1000, 1000))
        refused = True
        fits = low < high and low >= least and high <= after
    else:
        refused, fits = False, plan.low < plan.high
    assert fits != refused


class Informer:
    """The config of a model of series; `informer` and others have these fields."""

    context_length, prediction_length, lags_sequence = 24, 5, [1, 7]
    num_time_features, num_static_categorical_features = 2, 1


class PatchTST:
    """The config of a model of series with channels."""

    context_length, prediction_length, num_input_channels = 32, 8, 3


class TimesFM:
    """The config of a model whose future has another name."""

    context_length, horizon_length = 16, 4


@pytest.mark.parametrize(
    ("config", "name", "text"),
    [
        (Informer, "past_values", "{shape: [1, 31], dtype: float32}"),
        (Informer, "past_time_features", "{shape: [1, 31, 2], dtype: float32}"),
        (Informer, "past_observed_mask", "{shape: [1, 31], mask: ones}"),
        (Informer, "future_values", "{shape: [1, 5], dtype: float32}"),
        (Informer, "future_time_features", "{shape: [1, 5, 2], dtype: float32}"),
        (Informer, "future_observed_mask", "{shape: [1, 5], mask: ones}"),
        (Informer, "static_categorical_features", "{shape: [1, 1], dtype: int64, high: 2}"),
        (PatchTST, "past_values", "{shape: [1, 32, 3], dtype: float32}"),
        (PatchTST, "future_values", "{shape: [1, 8, 3], dtype: float32}"),
        (TimesFM, "future_values", "{shape: [1, 4], dtype: float32}"),
        (object, "future_values", "{shape: [1, 12], dtype: float32}"),
    ],
)
def test_the_lines_for_a_series_have_the_lengths_of_its_config(config, name, text):
    signature = Signature((Parameter("past_values"), Parameter(name)))
    shapes = shapes_of(config(), signature)
    assert written(Parameter(name), series=shapes) == text
    assert lines_for([Parameter(name)], series=shapes).endswith(f"{name}: {text}")


def test_a_set_without_the_future_is_refused_with_its_length():
    signature = Signature((Parameter("past_values", True), Parameter("future_values", True)))
    with pytest.raises(NotFed, match=r"future_values: \{shape: \[1, 5\], dtype: float32\}"):
        check_names(["past_values"], signature, {}, "the set", shapes_of(Informer(), signature))


def test_a_model_of_text_has_no_shapes_of_series():
    assert shapes_of(Informer(), Signature((Parameter("input_ids"),))) == {}
