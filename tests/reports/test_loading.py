import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from samebits.pipeline import trim
from samebits.records.provenance import IntegritySignal, Provenance, RoundTrip
from samebits.reports import document, json
from samebits.reports.sections.loading import EVERY_NAME, MAX_LINES
from tests.support.pages import beside_models, pages_of, uncut
from tests.support.sample_report import each_cell, same_everywhere, with_rows

GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])
SAME = RoundTrip(outcome="same bits", logits="same bits")
POISON = "NaN, seen in 8 of 10 ways to allocate"


def loaded(**fields):
    return Provenance(kind="parameter", source="loaded", written="all", steady=True, **fields)


def buffer(source, n=0, **fields):
    written = {"unwritten": "none", "partly written": "partly"}.get(source, "all")
    facts = {"written": written, "n_unwritten": n, "steady": source in ("derived", "unexplained")}
    return Provenance(kind="non-persistent buffer", source=source, **(facts | fields))


def signal(silent=(), **fields):
    """A load of one loaded tensor and others: ``a__b`` is the tensor ``a.b``."""
    values = {"poison": POISON, "round_trip": SAME, "seconds": 0.125}
    values |= {
        name: fields.pop(name) for name in list(fields) if name in IntegritySignal.model_fields
    }
    tensors = {name.replace("__", "."): facts for name, facts in fields.items()}
    return IntegritySignal(tensors={"w": loaded()} | tensors, silent=silent, **values)


def row(model="m", dtype="float32", **signals):
    plain = each_cell(same_everywhere(model, dtype), changes={})
    loads = {stack[1:].replace("_", "."): trim.load(signals[stack]) for stack in signals}
    return plain.model_copy(update={"attention": {}, "integrity": loads})


def documents(*rows):
    return document.render(with_rows(*rows))


def section(text):
    match = re.search(r"^## Loading\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return re.sub(r" +", " ", re.sub(r"-{3,}", "--", match[0])) if match else ""


def report(*rows):
    return section(beside_models(documents(*rows)))


def page(*rows):
    return section(documents(*rows)["models/m.md"])


def lines(text):
    return [line for line in text.splitlines() if line.startswith("| ")][1:]


def test_nothing_looked_into_says_nothing():
    plain = row()
    assert "Loading" not in beside_models(documents(plain))


def test_all_clean_is_one_sentence_with_counts_and_no_page():
    rows = [row("m", x4_48=signal(), x5_0=signal(b=buffer("derived"))), row("n", x5_0=signal())]
    text = report(*rows)
    assert (
        "Of 3 loads of 2 models with 4 tensors, all of them are clean. In a clean load every tensor"
        in text
    )
    assert lines(text) == []
    assert pages_of(documents(*rows)) == []
    alone = report(row("m", x5_0=signal()))
    assert (
        "Of 1 load of 1 model with 1 tensor, all of it is clean. In a clean load every tensor"
        in alone
    )


def test_what_is_not_clean_has_a_line_where_it_is():
    bad = signal(("r.inv_freq",), r__inv_freq=buffer("unwritten", 3))
    text = report(row(x4_48=signal(), x5_0=bad, x5_9=bad), row("n", x5_0=signal()))
    assert "Of 4 loads of 2 models with 6 tensors, 2 of 4 (50.0 %) are clean" in text
    assert lines(text) == [
        (
            "| never written, not reported as missing | [m](models/m.md#loading) | float32-sdpa "
            "| 5.0, 5.9 | `r.inv_freq` |"
        )
    ]


def test_a_missing_key_that_loading_names_is_listed_apart():
    both = signal(("a",), a=buffer("reinitialised"), b=buffer("reinitialised"))
    words = [line.split(" | ")[0] for line in lines(report(row(x5_0=both)))]
    assert words == ["| initialised at random, not reported as missing", "| initialised at random"]


def test_equal_lines_fold_over_stacks_variants_and_models():
    bad = signal(layers__0__t=buffer("unwritten", 3), layers__1__t=buffer("unwritten", 3))
    rows = [row(m, d, x5_0=bad, x5_9=bad) for m in ("m", "n") for d in ("float32", "bfloat16")]
    assert lines(report(*rows)) == [
        (
            "| never written | [m](models/m.md#loading), [n](models/n.md#loading) "
            "| float32-sdpa, bfloat16-sdpa | 5.0, 5.9 | `layers.0-1.t` |"
        )
    ]
    other = row("n", x5_0=signal(layers__0__t=buffer("unwritten", 3)))
    assert len(lines(report(rows[0], other))) == 2


def test_the_worst_comes_first():
    load = signal(
        ("d",),
        a=buffer("unexplained"),
        b=buffer("reinitialised"),
        c=buffer("partly written", 5),
        d=buffer("unwritten", 3),
        e=buffer("derived", ignored=True),
        stored_dtypes={"bfloat16": 2, "int64": 1},
        default_dtypes={"float32": 2},
        round_trip=RoundTrip(outcome="save failed", reason="OSError: no"),
    )
    words = [line.strip("| ").split(" | ") for line in lines(report(row(x5_0=load)))]
    assert [(cells[0], cells[-1]) for cells in words] == [
        ("never written, not reported as missing", "`d`"),
        ("partly written", "`c`, 5 elements not written"),
        ("initialised at random", "`b`"),
        ("of unknown origin", "`a`"),
        ("differs from the checkpoint's tensor of that name", "`e`"),
        ("saved and loaded again", "save failed: OSError: no"),
        ("dtype of a load without a dtype argument", "float32, but the checkpoint holds bfloat16"),
    ]


def test_the_checkpoints_own_dtype_is_clean():
    fits = {"stored_dtypes": {"bfloat16": 2, "int64": 1}, "default_dtypes": {"bfloat16": 2}}
    assert lines(report(row(x5_0=signal(**fits)))) == []


def test_a_round_trip_says_what_it_lost():
    trip = RoundTrip(
        outcome="differs", tensors=("a.b", "c"), config=("x: 1 → 2",), logits="differs"
    )
    text = report(row(x5_0=signal(round_trip=trip)))
    assert (
        "tensors that differ or are missing: `a.b`, `c`; config `x: 1 → 2`; different logits |"
        in text
    )


def test_what_was_not_tried_is_said():
    trip = RoundTrip(outcome="not tried", reason="it would need another 9.1 GiB")
    text = report(row(x5_0=signal(round_trip=trip)))
    assert lines(text)[0].endswith("| 5.0 | it would need another 9.1 GiB |")


def test_what_memory_was_filled_with_and_is_not_covered():
    uncovered = buffer("derived", written="not covered", not_covered="numpy | `x`")
    text = report(row(x5_0=signal(b=uncovered), x5_9=signal()))
    assert f"- Poison in 2 loads: {POISON}." in text
    assert r"- 1 tensor could not be checked for uninitialised memory: numpy | \`x\`." in text
    assert "- The checks of a cell took at most 0.1 s." in text
    assert lines(text) == []


def test_a_page_counts_the_sources_and_names_what_is_odd():
    bad = signal(
        ("r.b",),
        r__b=buffer("unwritten", 3, fresh="differs"),
        t=Provenance(kind="parameter", source="tied", written="all", steady=True),
        n=buffer("derived", written="not covered", not_covered="numpy's", steady=True),
    )
    text = page(row(x4_48=signal(), x5_0=bad), row("m", "bfloat16", x5_0=bad))
    assert lines(text)[1:] == [
        "| variants | environments | tensors | loaded | tied | derived | unwritten | not checked |",
        "| float32-sdpa | 4.48 | 1 | 1 | | | | |",
        "| float32-sdpa, bfloat16-sdpa | 5.0 | 4 | 1 | 1 | 1 | 1 | 1 |",
        (
            "| variants | environments | kind | source | uninitialised elements | second load "
            "| fresh model | reported as missing | note | tensors |"
        ),
        (
            "| float32-sdpa, bfloat16-sdpa | 5.0 | non-persistent buffer | unwritten | 3 "
            "| different bytes | differs | no | | `r.b` |"
        ),
        (
            "| float32-sdpa, bfloat16-sdpa | 5.0 | non-persistent buffer | derived | "
            "| the same bytes | not compared | | numpy's | `n` |"
        ),
    ]


def test_every_odd_tensor_is_on_the_page():
    names = [f"t{i}x" for i in range(300)]
    bad = signal(**{name: buffer("unwritten", 1) for name in names})
    with uncut():
        text = page(row(x5_0=bad))
    assert all(f"`{name}`" in text for name in names)
    assert EVERY_NAME > 300
    assert "and 294 more" in report(row(x5_0=bad))


def test_more_lines_than_one_reads_are_counted():
    rows = [
        row(f"m{i}", x5_0=signal(**{f"t{i}": buffer("unwritten", 1)})) for i in range(MAX_LINES + 3)
    ]
    text = report(*rows)
    assert len(lines(text)) == MAX_LINES
    assert "… and 3 more on the models' pages." in text


@pytest.mark.parametrize("wild", ["a|b", "`x`", "<b>&amp;", "[x](y)", "*a*", "\x1b[31m", "\u202ee"])
def test_names_and_reasons_stay_text(wild):
    trip = RoundTrip(outcome="save failed", reason=wild)
    odd = buffer("unwritten", 1, detail=wild, not_covered=wild)
    texts = documents(row(x5_0=signal(**{wild: odd}, poison=wild, round_trip=trip)))
    for text in texts.values():
        assert "\x1b" not in text
        assert "\u202e" not in text
        html = GFM.render(section(text))
        assert "<b>" not in html
        assert '<a href="y"' not in html
        for table in re.findall(r"<table>.*?</table>", html, re.DOTALL):
            rows = [line.count("<t") for line in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)]
            assert len(set(rows)) == 1


@given(st.sampled_from(["a", "b"]), st.integers(0, 9), st.sampled_from([None, True, False]))
def test_report_json_reads_back(name, n, steady):
    facts = buffer("partly written", n, steady=steady)
    rows = (row(x5_0=signal(**{name: facts})),)
    written = with_rows(*rows)
    assert json.read(json.render(written)) == written
