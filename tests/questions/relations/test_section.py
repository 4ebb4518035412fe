import json
import math
import re
import sys
from typing import get_args

import pytest
from hypothesis import given, settings
from markdown_it import MarkdownIt

from samebits.questions.relations.lines import RELATIONS, largest, lines
from samebits.questions.relations.of_model import WAYS
from samebits.questions.relations.records import (
    CacheTensor,
    GreedySplit,
    Inapplicable,
    LayerDistance,
    Precision,
    Relation,
    RelationName,
    RelationsOfRow,
    RelationsSignal,
    SampleAverages,
    TopDifference,
    signals_of,
)
from samebits.questions.relations.section import broken_line
from samebits.records.made import MadeModel
from samebits.reports import document
from samebits.reports import json as reports_json
from samebits.text.lists import group_equal
from samebits.text.numbers import size
from tests.support.pages import (
    assert_gold,
    beside_models,
    pages_of,
    structure,
    texts,
    uncut,
)
from tests.support.sample_report import (
    STACKS,
    decoding,
    delta_net,
    distance,
    holding,
    relation,
    same_everywhere,
    sample_report,
)

GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])
NAME = "full forward = prefill + decode"
DASH = "\N{EN DASH}"


INCONSISTENT = "Inconsistent within one release (with and without cache, padded, batched):"


def signal(*relations, **fields):
    return RelationsSignal(relations=relations, **fields)


def row(model="m", dtype="float32", **by_stack):
    """A row whose bits are the same everywhere, with these relations by stack."""
    plain = same_everywhere(model, dtype)
    cells = tuple(cell.model_copy(update={"changes": {}}) for cell in plain.cells)
    named = {stack[1:].replace("_", "."): by_stack[stack] for stack in by_stack}
    return plain.model_copy(
        update={
            "cells": cells,
            "attention": {},
            "answers": {"relations": RelationsOfRow(stacks=named)},
        }
    )


def documents(*rows):
    return document.render(sample_report().model_copy(update={"rows": rows}))


def section(*rows):
    """The section of report.md."""
    text = beside_models(documents(*rows))
    match = re.search(
        r"^## Relations inside one release\n.*?(?=^## )", text, re.MULTILINE | re.DOTALL
    )
    return match[0] if match else ""


def page(*rows):
    return documents(*rows)["models/m.md"]


def squeezed(text):
    return re.sub(r" +", " ", text)


def test_page_of_a_model_with_broken_relations():
    path = "models/qwen3_next.md"
    assert_gold(path, document.render(sample_report())[path])


def test_the_sample_shows_every_kind_of_fact():
    signals = [s for row in sample_report().rows for s in signals_of(row).values()]
    relations = [case for s in signals for case in s.relations]
    for field in ("distance", "promoted", "layers", "positions", "top", "cache", "split"):
        assert any(getattr(case, field) for case in relations), field
    for field in set(RelationsSignal.model_fields) - {"no_precision", "asked_of"}:  # have own tests
        assert any(getattr(s, field) for s in signals), field


def test_the_headline_counts_and_says_where():
    text = section(
        row(x5_0=signal(relation(NAME, "3 tokens", 1.0, promoted=1.0), holding("causality"))),
        row("n", x5_0=signal(holding(NAME)), x5_9=signal(holding(NAME))),
    )
    headline = text.splitlines()[2].replace("\N{MULTIPLICATION SIGN}", "x")
    assert headline == (
        "2 relations x 2 models x 2 environments: of 4 relations tried, 3 hold; "
        "**1 is broken**: m on 5.0."
    )


def test_the_headline_of_a_model_where_all_holds():
    text = section(row(x5_0=signal(holding(NAME))))
    assert text.splitlines()[2].endswith(": of 1 relation tried, 1 holds; none is broken.")
    assert "Broken, with" not in text
    assert pages_of(documents(row(x5_0=signal(holding(NAME))))) == []


def test_many_broken_models_are_counted():
    broken = signal(relation(NAME, "3 tokens", 1.0, promoted=1.0))
    rows = [row(f"m{i}", x5_0=broken) for i in range(80)]
    text = section(*rows)
    assert "m5 on 5.0; and 74 more models." in text
    assert "… and 20 more, counted in the next table." in text
    assert re.search(r"\| full forward = prefill \+ decode \| +80 \| all 80 \|", squeezed(text))
    line = broken_line(sample_report().model_copy(update={"rows": tuple(rows)}))
    assert line.startswith(f"{INCONSISTENT} m0 in 5.0 (1 check); m1")
    assert line.endswith("; and 74 more models")


def test_broken_relations_come_first_with_their_smallest_shape():
    wrong = relation(NAME, "120 tokens", 1.0, promoted=1.0)
    smaller = relation(NAME, "40 tokens", 3.0, promoted=2.0)
    text = section(
        row(
            x4_57=signal(inapplicable=(Inapplicable(relation=NAME, reason="no cache"),)),
            x5_0=signal(wrong),
            x5_9=signal(smaller),
            x5_23=signal(holding(NAME)),
        )
    )
    line = squeezed(next(li for li in text.splitlines() if "[m · float32-sdpa]" in li))
    assert line.startswith("| full forward = prefill + decode | [m · float32-sdpa](models/m.md#")
    assert line.endswith(
        "| 5.0, 5.9 broken; 5.23 holds; 4.57 not tried | 3.0e+00 | 2.0e+00 | 40 tokens |"
    )


def test_each_cell_of_the_matrix_has_its_own_words():
    split = GreedySplit(step=1, margin=1e-3, one=(1, 2), other=(1, 3))
    tokens = Relation(relation=NAME, case="a", holds=False, split=split)
    text = section(
        row(
            x4_57=signal(relation(NAME, "a", 7.9e-07, promoted=1.6e-15)),
            x5_0=signal(relation(NAME, "a", 3.4, promoted=3.4)),
            x5_9=signal(relation(NAME, "a", 2e-06, promoted=None)),
            x5_23=signal(tokens),
        ),
        row("n", x4_48=signal(holding(NAME))),
        row(
            "o",
            x4_57=signal(tokens.model_copy(update={"split": None})),
            x4_48=signal(inapplicable=(Inapplicable(relation=NAME, reason="none"),)),
        ),
    )
    matrix_lines = [squeezed(li) for li in text.splitlines() if "| 1 | `" in squeezed(li)]
    assert matrix_lines == [
        (
            f"| {NAME} | 1 | `m` | float32 | not tried | 7.9e-07 (1.6e-15) "
            f"| **broken** 3.4e+00 (3.4e+00) | differs 2.0e-06 ({DASH}) "
            "| differs by a margin of 1.0e-03 |"
        ),
        f"| {NAME} | 1 | `o` | float32 | {DASH} | differs | not tried | not tried | not tried |",
        f"| {NAME} | 1 | `n` | float32 | holds | not tried | not tried | not tried | not tried |",
    ]


def test_models_that_stand_alike_share_a_line_with_the_largest_figures():
    small = signal(relation(NAME, "a", 1e-07, promoted=3e-15))
    large = signal(relation(NAME, "a", 2e-07, promoted=2e-15))
    coarse = signal(relation(NAME, "a", 0.5, promoted=2e-15))
    text = squeezed(
        section(row("a", x5_0=small), row("b", x5_0=large), row("a", "bfloat16", x5_0=coarse))
    )
    assert "| 2 | `a`, `b` | float32 | 2.0e-07 (3.0e-15) |" in text
    assert "| 1 | `a` | bfloat16 | 5.0e-01 (2.0e-15) |" in text


def test_dtypes_share_a_line_where_all_holds():
    plain = signal(holding(NAME))
    text = squeezed(section(row("a", x5_0=plain), row("a", "bfloat16", x5_0=plain)))
    assert "| 2 | `a` | float32, bfloat16 | holds |" in text


def test_the_worst_of_several_shapes_stands_for_the_relation():
    answer = signal(
        holding(NAME),
        relation(NAME, "7 tokens", 1e-7, promoted=1e-16),
        relation(NAME, "9 tokens", 2e-7, promoted=1e-16),
    )
    text = page(row(x5_0=answer))
    assert "| 2.0e-07 (1.0e-16) |" in text
    assert [case in text for case in ("| 33 tokens", "| 7 tokens", "| 9 tokens")] == [True] * 3


def test_reasons_are_joined_over_relations_models_and_stacks():
    encoder = signal(
        inapplicable=tuple(Inapplicable(relation=n, reason="an encoder") for n in RELATIONS)
    )
    part = signal(
        holding(NAME), inapplicable=(Inapplicable(relation="causality", reason="an encoder"),)
    )
    text = squeezed(
        section(
            row("a", x5_0=encoder, x5_9=encoder),
            row("b", x5_0=encoder, x5_9=encoder),
            row(x5_0=part),
        )
    )
    assert "| an encoder | all shapes | all | `a`, `b` | 5.0, 5.9 |" in text
    assert "| an encoder | all shapes | causality | `m` | 5.0 |" in text


MADE = MadeModel(n_layers=2, hidden_size=64, n_parameters=262_976)
ASKED = "checked with a tiny model of 2 layers, hidden size 64 and 262,976 parameters"


def test_a_made_model_is_named_wherever_its_relations_are_shown():
    broken = relation(NAME, "40 tokens", 3.0, promoted=3.0)
    made, itself = signal(broken, asked_of=MADE), signal(broken)
    rows = (row("m", x4_48=made, x5_0=made), row("small", x4_48=itself))
    text = squeezed(section(*rows))
    assert f"`m` in 4.48, 5.0: {ASKED}, not the model itself." in text
    assert "nothing about the weights" in text
    assert "m on 4.48, 5.0 (seen with a tiny model of the same config); small on 4.48" in text
    assert ") (seen with a tiny model of the same config) |" in text
    assert ASKED in page(*rows[:1])
    assert summary_line(*rows).count(", seen with a tiny model of the same config)") == 1
    plain = row("m", x4_48=itself)
    assert "tiny model" not in section(plain) + page(plain) + summary_line(plain)


def summary_line(*rows):
    return broken_line(sample_report().model_copy(update={"rows": rows}))


def test_very_many_reasons_are_cut_and_counted():
    rows = [
        row(f"m{i}", x5_0=signal(inapplicable=(Inapplicable(relation=NAME, reason=f"r{i}x"),)))
        for i in range(70)
    ]
    text = section(*rows)
    assert "… and 10 more in report.json." in text
    assert "none is broken" in text


def test_shapes_that_were_refused_are_told_from_relations_without_a_meaning():
    refused = tuple(Inapplicable(relation=NAME, reason=f"{i} tokens: no") for i in (3, 4))
    text = squeezed(section(row(x5_0=signal(holding(NAME), inapplicable=refused))))
    assert f"| 3 tokens: no | some shapes | {NAME} | `m` | 5.0 |" in text
    assert f"| 4 tokens: no | some shapes | {NAME} | `m` | 5.0 |" in text
    assert f"| {NAME} | 1 | `m` | float32 | holds |" in text


def test_where_float64_is_not_to_be_had_the_reason_is_given():
    answer = signal(relation(NAME, "a", 1.0, promoted=None), no_float64="too large")
    text = section(row("a", x5_0=answer, x5_9=answer), row(x5_0=answer, x5_9=answer))
    assert "<summary>Cells without float64 figures, and why</summary>" in text
    assert "| too large | `a`, `m` | 5.0, 5.9 |" in squeezed(text)
    assert "| too large | `m` | 5.0 |" in squeezed(page(row(x5_0=answer)))
    rows = [row(f"m{i}", x5_0=signal(holding(NAME), no_float64=f"r{i}")) for i in range(61)]
    assert "… and 1 more in report.json." in section(*rows)


def test_a_difference_of_the_layers_alone_has_a_figure():
    layers = (LayerDistance(name="layer 0", distance=distance(2e-6)),)
    case = relation(NAME, "a", 0.0, promoted=None, layers=layers)
    assert f"| differs in the layers 2.0e-06 ({DASH}) |" in section(row(x5_0=signal(case)))


def test_layers_alone_are_judged_by_their_own_float64():
    def section_with(promoted):
        layers = (
            LayerDistance(name="layer 0", distance=distance(2e-6), promoted=distance(promoted)),
        )
        case = relation(NAME, "a", 0.0, promoted=0.0, layers=layers)
        same = case.distance.model_copy(update={"n_differ": 0})
        return section(row(x5_0=signal(case.model_copy(update={"distance": same}))))

    assert "| in the layers 2.0e-06 (1.0e-15) |" in section_with(1e-15)
    assert "| **broken** in the layers 2.0e-06 (2.0e-06) |" in section_with(2e-6)


BY_DESIGN = "by design: this dynamic rope has other frequencies beyond 32 tokens"


def test_a_rope_that_depends_on_the_length_is_no_defect_of_the_cache():
    meant = signal(relation(NAME, "40 tokens", 0.5, promoted=0.5, note=BY_DESIGN))
    wrong = signal(relation(NAME, "40 tokens", 0.5, promoted=0.5))
    text = section(row("dynamic", x5_0=meant, x5_9=meant), row("plain", x5_0=wrong))
    assert "dynamic on 5.0, 5.9 (by design); plain on 5.0." in text
    assert f"- dynamic, {NAME}: {BY_DESIGN}.\n" in text
    assert "- plain" not in text
    assert f"On 5.0, 5.9 {BY_DESIGN}." in page(row(x5_0=meant, x5_9=meant))
    assert "On 5.0" not in page(row(x5_0=wrong))
    both = (row("dynamic", x5_0=meant), row("plain", x5_0=wrong))
    line = broken_line(sample_report().model_copy(update={"rows": both}))
    assert "dynamic in 5.0 (1 check, by design)" in line
    assert "plain in 5.0 (1 check)" in line


def test_each_release_has_the_number_of_checks_that_it_breaks():
    both = [relation(name, "40 tokens", 0.5, promoted=0.5) for name in (NAME, "causality")]
    broken = (row("griffin", x5_0=signal(*both), x5_9=signal(both[1])),)
    line = broken_line(sample_report().model_copy(update={"rows": broken}))
    assert line.endswith("griffin in 5.0, 5.9 (2 and 1 checks)")


def test_padding_without_positions_is_told_only_where_a_release_keeps_it_off():
    name, note = "left padding, positions left out", "it may count them from the first pad on"
    broken = signal(relation(name, "31 tokens", 0.5, promoted=0.5, note=note))
    kept = signal(relation(name, "31 tokens", 1e-6, promoted=1e-15))
    alike = (row("gpt2", x5_0=broken, x5_9=broken),)
    assert broken_line(sample_report().model_copy(update={"rows": alike})) == ""
    assert name not in section(*alike)
    moved = (row("biogpt", x5_0=kept, x5_9=broken),)
    line = broken_line(sample_report().model_copy(update={"rows": moved}))
    assert "biogpt in 5.9 (1 check)" in line


def test_one_relation_that_is_not_meant_keeps_the_model_accused():
    meant = relation(NAME, "40 tokens", 0.5, promoted=0.5, note=BY_DESIGN)
    wrong = relation("causality", "40 tokens", 0.5, promoted=0.5)
    text = section(row(x5_0=signal(meant, wrong)))
    assert "m on 5.0.\n" in text
    assert f"- m, {NAME}: {BY_DESIGN}.\n" in text


def test_every_relation_has_names_for_its_two_ways():
    assert tuple(WAYS) == RELATIONS


def test_layers_stand_side_by_side():
    def grown(*sizes):
        layers = tuple(
            LayerDistance(name=f"layer {i}", distance=distance(s)) for i, s in enumerate(sizes)
        )
        return signal(relation(NAME, "a", 1.0, promoted=1.0, layers=layers))

    text = squeezed(page(row(x4_57=grown(0, 0.5), x5_0=grown(0, 0.5), x5_9=grown(0, 0.25, 1))))
    assert (
        "| layer | max abs on 4.57, 5.0 | mean abs on 4.57, 5.0 | max abs on 5.9 | mean abs on 5.9 |"
    ) in text
    assert "| layer 1 | 5.000000e-01 | 5.000000e-03 | 2.500000e-01 | 2.500000e-03 |" in text
    assert "| layer 2 | | | 1.000000e+00 | 1.000000e-02 |" in text


def test_the_largest_differences_name_both_ways():
    top = (TopDifference(position=4, token=6927, one=-6.34375, other=-6.21875),)
    text = squeezed(page(row(x5_0=signal(relation(NAME, "a", 0.125, promoted=0.125, top=top)))))
    assert "The largest difference of the logits on 5.0:" in text
    assert "| position | token | full forward | prefill + decode | abs diff |" in text
    assert "| 4 | 6927 | -6.34375 | -6.21875 | 1.250000e-01 |" in text


def test_positions_are_shown_where_they_are_not_alike():
    def page_with(*positions):
        case = relation(NAME, "a", 1.0, promoted=1.0, positions=positions)
        return page(row(x5_0=signal(case)))

    start = "Largest difference at each of 4 positions on 5.0: "
    assert f"{start}0 (2 positions), 1.0e+00, 2.0e+00\n" in page_with(0, 0, 1, 2)
    assert "positions on" not in page_with(1, 1, 1)
    assert "positions on" not in page_with()
    long = page_with(*(2.0**i for i in range(40)))
    assert "2.0e+03, …, 1.4e+11, 2.7e+11, 5.5e+11\n" in long


def test_the_cache_says_how_many_elements_differ():
    def tensor(name, size, n=35_328):
        d = distance(size, n=n).model_copy(update={"n_differ": 4236 if size else 0})
        return CacheTensor(name=name, shape=(1, 2, 69, 256), distance=d)

    def answer(*tensors):
        case = relation("cache contents", "69 tokens", 1.0, promoted=1e-16, cache=tensors)
        return signal(case)

    text = squeezed(
        page(
            row(
                x5_0=answer(tensor("layer 0 keys", 0.5), tensor("layer 0 values", 0)),
                x5_9=answer(tensor("layer 0 values", 0)),
                x5_23=answer(tensor("layer 0 keys", 0), tensor("layer 0 values", 0)),
            )
        )
    )
    assert (
        "| `layer 0 keys` | `[1, 2, 69, 256]` "
        "| 4,236 out of 35,328 elements differ, max abs 5.0e-01 | no such tensor | the same bytes |"
    ) in text
    assert "The same bytes: 1 other tensor." in text
    many = answer(*(tensor(f"layer {i} keys", 0.5) for i in range(130)))
    assert "… and 122 more that differ, listed in report.json." in page(row(x5_0=many))
    same = answer(tensor("layer 0 keys", 0))
    assert "The cache after" not in page(row(x5_0=same))


def test_greedy_splits_show_both_lists():
    def answer(step, margin):
        split = GreedySplit(step=step, margin=margin, one=(1, 2), other=(1, 3))
        name = "greedy without cache = with cache"
        return signal(Relation(relation=name, case="a", holds=False, split=split))

    text = squeezed(page(row(x5_0=answer(1, 2e-4), x5_9=answer(None, None))))
    assert "| environments | first step | margin | without cache | with cache |" in text
    assert "| 5.0 | 1 | 2.0e-04 | `1 2` | `1 3` |" in text
    assert "| 5.9 | never | | `1 2` | `1 3` |" in text


def test_broken_relations_come_first_on_the_page_and_the_others_are_folded():
    text = page(
        row(
            x5_0=signal(
                relation(NAME, "a", 1e-7, promoted=1e-16),
                relation("causality", "b", 1.0, promoted=1.0),
                holding("row order"),
            )
        )
    )
    assert text.index("### causality, float32-sdpa: broken on 5.0") < text.index(
        "<summary>full forward = prefill + decode, float32-sdpa</summary>"
    )
    assert "1 hold in every environment that ran them, in float32-sdpa: row order." in text
    assert "nox -s matrix -- --cell m/float32-sdpa@5.0" in text


def test_a_broken_relation_without_a_command():
    broken = row(x5_0=signal(relation(NAME, "a", 1.0, promoted=1.0)))
    cells = tuple(cell.model_copy(update={"reproduce": ""}) for cell in broken.cells)
    assert "To reproduce" not in page(broken.model_copy(update={"cells": cells}))


def test_the_ratio_to_float64_is_given():
    text = squeezed(page(row(x5_0=signal(relation(NAME, "a", 1e-7, promoted=2e-16)))))
    assert "| 1.000000e-07 | 1.000000e-09 | 0 | 2.000000e-16 | 2.000000e-18 | 2.0e-09 |" in text
    bytes_alone = page(row(x5_0=signal(relation(NAME, "a", 0.0, promoted=0.0))))
    assert "ratio" not in bytes_alone


def precise(what, dtype, bits, used):
    return Precision(what=what, dtype=dtype, mantissa_bits=bits, used_bits=used)


@pytest.mark.parametrize(
    ("dtype", "bits", "used", "note"),
    [
        ("float32", 23, 7, "float32, but every value fits bfloat16"),
        ("float32", 23, 10, "float32, but every mantissa fits float16"),
        ("float64", 52, 23, "float64, but every mantissa fits float32"),
        ("float16", 10, 0, "float16, but every value fits bfloat16"),
    ],
)
def test_a_dtype_that_is_not_what_it_claims_is_called_out(dtype, bits, used, note):
    answer = signal(holding(NAME), precision=(precise("logits", dtype, bits, used),))
    documents_ = documents(row(x5_0=answer, x5_9=answer))
    assert f"- m/float32-sdpa on 5.0, 5.9: logits are {note}\n" in beside_models(documents_)
    assert f"| **{note}** |" in documents_["models/m.md"]


@pytest.mark.parametrize(
    ("dtype", "bits", "used"),
    [("float32", 23, 23), ("float32", 23, 11), ("bfloat16", 7, 3), ("float16", 10, 8)],
)
def test_a_dtype_that_is_used_is_not_called_out(dtype, bits, used):
    answer = signal(holding(NAME), precision=(precise("logits", dtype, bits, used),))
    assert pages_of(documents(row(x5_0=answer))) == []
    assert "coarser dtype" not in section(row(x5_0=answer))


def test_coarse_parameters_are_no_fault():
    answer = signal(
        relation(NAME, "a", 1e-7, promoted=0), precision=(precise("parameters", "float32", 23, 7),)
    )
    assert "coarser dtype" not in section(row(x5_0=answer))
    assert "| float32, but every value fits bfloat16 |" in page(row(x5_0=answer))


def test_many_coarse_rows_are_cut_and_counted():
    answer = signal(precision=(precise("logits", "float32", 23, 7),))
    rows = [row(f"m{i}", x5_0=answer) for i in range(15)]
    text = section(row("n", x5_0=signal(holding(NAME))), *rows)
    assert text.count("every value fits bfloat16") == 12
    assert "- … and 3 more\n" in text


def test_a_coarse_row_without_relations_is_shown_all_the_same():
    answer = signal(precision=(precise("logits", "float32", 23, 7),))
    assert "logits are float32, but every value fits bfloat16" in section(row(x5_0=answer))
    assert "every value fits bfloat16" in page(row(x5_0=answer))


def test_a_forward_that_was_refused_leaves_its_precision_unknown():
    answer = signal(holding(NAME), no_precision="ValueError: no")
    text = page(row(x5_0=answer))
    sentence = "float32-sdpa on 5.0: not known for activations and logits: ValueError: no"
    assert f"- {sentence}\n" in text


def averaged(factor=1.0, samples=1000, **layers):
    means = {name.replace("_", " "): value * factor for name, value in layers.items()}
    return signal(averages=SampleAverages(samples=samples, dtype="float32", layers=means))


def test_averages_are_a_table_per_model_and_a_plot():
    layers = {"layer_0": 0.0, "layer_1": 1e-6, "logits": 2e-6, "layer_2": 1e-5}
    one, other = averaged(**layers), averaged(2**-1, **layers)
    text = page(
        row(x5_0=one, x5_9=one), row("m", "bfloat16", x5_0=other, x5_9=averaged(4, **layers))
    )
    assert "Mean over 1,000 prompts of the largest difference of each layer:" in text
    table = squeezed(text)
    assert "| layer | float32-sdpa | bfloat16-sdpa on 5.0 | bfloat16-sdpa on 5.9 |" in table
    assert "| layer 1 | 1.000000e-06 | 5.000000e-07 | 4.000000e-06 |" in table
    assert table.index("| layer 2 |") < table.index("| logits | 2.000000e-06 |")
    fence = next(t.content for t in GFM.parse(text) if t.info == "mermaid")
    assert 'x-axis "layer" [0, 1, 2]' in fence
    assert 'y-axis "log10" -7 --> -3' in fence
    assert re.findall("line (.*)", fence) == [
        "[-7.000, -6.000, -5.000]",
        "[-7.000, -5.398, -4.398]",
    ]
    assert "Lines: blue: float32-sdpa on 5.9; red: bfloat16-sdpa on 5.9." in text
    links = section(row(x5_0=one))
    assert "layer by layer: [m](models/m.md#relations-inside-one-release)." in links


def test_a_column_has_the_layers_it_has():
    text = page(row(x5_0=averaged(layer_0=1.0, layer_1=2.0), x5_9=averaged(layer_0=1.0)))
    assert "| layer 1 | 2.000000e+00 | |" in squeezed(text)
    assert "```mermaid" not in text, "the newest stack has one layer, and nothing grows"


def test_many_layers_have_a_numeric_axis():
    text = page(row(x5_0=averaged(**{f"layer_{i}": 1.0 for i in range(81)})))
    assert 'x-axis "layer" 0 --> 80\n' in text


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, sys.float_info.max])
def test_what_has_no_logarithm_is_not_plotted(value):
    text = page(row(x5_0=averaged(layer_0=value, layer_1=value)))
    assert "mermaid" not in text
    text = page(row(x5_0=averaged(layer_0=value, layer_1=1.0)))
    assert "line [-1.000, 0.000]" in text


def test_figures_that_are_no_number():
    assert size(sys.float_info.max) == "not finite"
    assert size(math.nan) == "nan"
    assert math.isnan(largest([1.0, math.nan, 2.0]))
    assert largest([]) == 0
    assert group_equal({"a": math.nan, "b": math.nan, "c": 1.0})[0][0] == ["a", "b"]


def test_lines_follow_the_order_of_the_relations():
    assert get_args(RelationName) == RELATIONS
    answer = signal(*map(holding, reversed(RELATIONS)))
    assert tuple(line.name for line in lines([row(x5_0=answer)])) == RELATIONS


def test_a_large_matrix_keeps_report_md_readable():
    def answer(i, unit):
        cases = [decoding("float32", "", unit * (1 + i)) for _ in RELATIONS]
        named = zip(cases, RELATIONS, strict=True)
        return signal(*(case.model_copy(update={"relation": name}) for case, name in named))

    rows = [
        row(f"model-{i}", dtype, x4_57=answer(i, unit), x5_0=answer(i, unit), x5_9=answer(i, unit))
        for i in range(87)
        for dtype, unit in (("float32", 2.0**-24), ("bfloat16", 2.0**-8))
    ]
    text = section(*rows)
    assert len(text) < 12_000
    assert text.count("\n| ") == 1 + 2 * len(RELATIONS)


@settings(max_examples=10, deadline=None)
@given(texts, texts)
def test_texts_of_relations_change_no_structure(text, message):
    def shown(text, message):
        rows = (delta_net("m", "float32", text, message),)
        report = sample_report().model_copy(update={"rows": rows})
        pages = document.render(report)
        return structure(beside_models(pages)), structure(pages["models/m.md"])

    with uncut():
        assert shown(f"x{text}", f"x{message}") == shown("x", "x")


@settings(max_examples=10, deadline=None)
@given(texts)
def test_nothing_leaves_the_plot(text):
    text_ = page(delta_net("m", "float32", text, ""))
    fence = next(t.content for t in GFM.parse(text_) if t.info == "mermaid")
    assert len(fence.splitlines()) == 6


def test_report_json_has_all_of_it():
    record = json.loads(reports_json.render(sample_report()))
    rows = [r for r in record["rows"] if r["model"] == "qwen3_next"]
    assert list(rows[0]["answers"]["relations"]["stacks"]) == list(STACKS[1:])
