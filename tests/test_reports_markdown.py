import difflib
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from sample_report import STACKS, attention, metrics, sample_report
from sample_report import cell as sample_cell
from sample_report import stacks as sample_stacks
from test_reports_text import NASTY

from samebits.capture import AttentionSignal, Failure
from samebits.comparison import Extreme, ItemComparison, SignalComparison
from samebits.document import ExpectedReport, Report, StackReport
from samebits.reports import machine, markdown, write
from samebits.reports.outcomes import since
from samebits.reports.overview import headline
from samebits.summary import summary
from samebits.words import Variant, Verdict

GOLD = Path(__file__).parent / "gold" / "report"
STACK_REPORTS = sample_stacks()
VARIANT = Variant(dtype="float32", attention="sdpa")
GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])

texts = st.one_of(
    st.sampled_from(NASTY), st.lists(st.sampled_from(NASTY), max_size=3).map("".join), st.text()
)


def assert_gold(name, text):
    """Compare with the gold file, or write it where SAMEBITS_REFRESH_GOLD asks for that."""
    path = GOLD / name
    if os.environ.get("SAMEBITS_REFRESH_GOLD"):
        path.write_text(text, "utf-8")
        pytest.skip(f"wrote {path}")
    lines = difflib.unified_diff(
        path.read_text("utf-8").splitlines(), text.splitlines(), f"gold/{name}", "now", lineterm=""
    )
    difference = "\n".join(lines)
    assert not difference, f"tests/gold/README.md says how to refresh\n{difference}"


def structure(text):
    """Every block of the document, and the marks within, without any text."""
    return [
        (
            token.type,
            [c.type for c in token.children or [] if c.type not in ("text", "code_inline")],
        )
        for token in GFM.parse(text)
    ]


def test_report_md():
    assert_gold("report.md", markdown.render(sample_report()))


def test_report_json():
    rows = tuple(row for row in sample_report().rows if row.model == "falcon")
    report = sample_report().model_copy(update={"rows": rows})
    assert_gold("report.json", machine.render(report))


def test_summary():
    assert_gold(
        "summary.txt", "\n".join(summary(sample_report(), Path("reports/latest/report.md")))
    )


def test_every_verdict_is_in_the_sample():
    found = {cell.verdict for row in sample_report().rows for cell in row.cells}
    assert found == set(Verdict)


@settings(max_examples=15, deadline=None)
@given(texts, texts, texts)
def test_names_messages_and_tokens_change_no_structure(name, message, token):
    plain = structure(markdown.render(sample_report("x", "x", "x")))
    found = structure(markdown.render(sample_report(f"x{name}", f"x{message}", f"x{token}")))
    assert found == plain


def test_html_is_that_of_folded_parts_alone():
    text = markdown.render(sample_report(*["<img src=x><details>"] * 3))
    html = [t.content for t in GFM.parse(text) if t.type == "html_block"]
    inline = [c for t in GFM.parse(text) for c in t.children or [] if c.type == "html_inline"]
    tags = set(re.findall(r"</?\w+", "".join(html)))
    assert tags == {"<details", "<summary", "</summary", "</details"}
    assert not inline


def test_every_link_within_the_report_leads_to_a_heading():
    text = markdown.render(sample_report())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    targets = set(re.findall(r"\]\(#([^)]+)\)", text))
    assert targets
    assert targets <= slugs


def test_rows_without_a_difference_have_no_section():
    text = markdown.render(sample_report())
    assert "### llama/" not in text
    assert "### gemma2/float32-sdpa" in text


def test_equal_rows_of_one_model_share_a_line():
    assert "| llama · float32-sdpa, bfloat16-sdpa " in markdown.render(sample_report())


def test_cells_of_one_outcome_share_a_subsection():
    assert "#### 5.0, 5.9: differs logits 1.2e-01" in markdown.render(sample_report())


def test_a_run_that_passes_says_so():
    report = sample_report().model_copy(update={"exit_code": 0, "reasons": (), "rows": ()})
    text = markdown.render(report)
    assert text.startswith("# samebits: matrix.yaml passes\n")
    assert "**The run passes.**" in text
    assert "## Needs attention" not in text
    assert summary(report, Path("r.md"))[-2] == "The run passes."


def test_an_empty_report_is_no_crash():
    report = sample_report().model_copy(
        update={"rows": (), "stacks": (), "checkpoints": (), "expected": (), "machine": None}
    )
    assert "0 models" in headline(report)
    assert "## Machine" not in markdown.render(report)


def test_headline_counts_the_cells_that_were_compared():
    rows = tuple(row for row in sample_report().rows if row.model == "llama")
    report = sample_report().model_copy(update={"rows": rows})
    assert headline(report).replace("\N{MULTIPLICATION SIGN}", "x") == (
        "1 model x 2 variants x 6 stacks (1 not built): "
        "8 of 8 cells hold the same bits as the reference."
    )


def test_since_names_the_stacks_that_are_good_again():
    row = next(row for row in sample_report().rows if row.model == "opensci-ref")
    assert since(row, ["5.0"]) == "5.0 (4.57 is the last good one; good again in 5.9)"
    assert since(row, ["4.48"]) == "4.48 (good again in 4.57, 5.9)"


def with_attention(*signals):
    """The sample with one row, whose stacks ran these attentions."""
    row = (
        sample_report()
        .rows[0]
        .model_copy(update={"attention": dict(zip(STACKS, signals, strict=False))})
    )
    return sample_report().model_copy(update={"rows": (row,)})


def test_attention_that_was_not_observed_is_said_to_be():
    nothing = AttentionSignal(requested="sdpa", resolved=None)
    text = markdown.render(with_attention(nothing, attention(gqa=False)))
    assert re.search(r"\| `sdpa → unknown` +\| not observed ", text)


def test_attention_without_sdpa_has_no_arguments_of_it():
    eager = attention(gqa=False)
    calls = {"short": tuple(c.model_copy(update={"sdpa": None}) for c in eager.calls["short"])}
    report = with_attention(AttentionSignal(requested="eager", resolved="eager", calls=calls))
    text = markdown.render(report)
    assert "In every row all stacks ran the same attention." in text
    assert "enable_gqa" not in text


def test_no_attention_no_section():
    assert "## Attention" not in markdown.render(with_attention())


def test_stacks_without_a_difference_say_so():
    stacks = tuple(stack.model_copy(update={"packages": {"a": "1"}}) for stack in STACK_REPORTS)
    report = sample_report().model_copy(update={"stacks": stacks})
    assert "Every package has the same version in every stack." in markdown.render(report)


def test_a_machine_without_variables():
    machine = sample_report().machine.model_copy(update={"environment": {}})
    report = sample_report().model_copy(update={"machine": machine})
    assert "environment variable" not in markdown.render(report)


def only(cell):
    """The sample with the one cell."""
    row = sample_report().rows[0].model_copy(update={"cells": (cell,)})
    return markdown.render(sample_report().model_copy(update={"rows": (row,)}))


def differing(signal, *items):
    found = SignalComparison(
        signal=signal, outcome="differs", n_items=9, n_differ=len(items), items=items
    )
    return sample_cell("m", VARIANT, "5.0", Verdict.DIFFERS, signals=(found,), reference=None)


def item(**fields):
    return ItemComparison(**{"name": "a", "outcome": "differs"} | fields)


def test_logits_without_positions_and_top():
    text = only(differing("logits", item(metrics=metrics(0.5, kl_max=None, cosine=None))))
    assert "argmax" not in text
    assert "between the logits" not in text
    assert "cosine" not in text


def test_one_large_difference():
    top = (Extreme(index=(1,), reference=0.0, candidate=1.0),)
    text = only(differing("logits", item(metrics=metrics(1.0, top=top, kl_max=0.5))))
    assert "The largest difference between the logits of `a`:" in text
    assert "at most 5.0e-01 nats\n" in text


def test_padding_rows_without_figures():
    text = only(differing("hidden_states", item(outcome="identical", pad_rows="differ")))
    assert "padding rows, which do not count, differ |" in text


def test_many_tensors_are_cut_and_counted():
    items = [item(name=f"w{i}", metrics=metrics(1.0)) for i in range(250)]
    assert "… and 50 more in report.json." in only(differing("weights", *items))


def test_failures_without_frames_and_cells_without_commands():
    failure = Failure(phase="load", type="Killed", message="", traceback="")
    bare = sample_cell("m", VARIANT, "5.0", Verdict.FAILED, failure=failure)
    text = only(bare.model_copy(update={"reproduce": ""}))
    assert "Deepest" not in text
    assert "Traceback" not in text
    assert "To reproduce" not in text


def test_a_stack_without_a_lock_file_shows_its_digest():
    stack = StackReport(id="a", transformers="5.0.0", lock_digest="12" * 32)
    bare = StackReport(id="b", transformers="5.0.0", lock="b.txt")
    report = sample_report().model_copy(update={"stacks": (stack, bare), "rows": ()})
    text = markdown.render(report)
    assert "`121212121212`" in text
    assert re.search(r"\[lock\]\(b\.txt\) +\|", text)


def test_part_of_an_entry_can_be_fixed():
    entry = ExpectedReport(line=3, text="a", reason="b", cells=("c",), fixed=("5.9",))
    report = sample_report().model_copy(update={"expected": (entry,)})
    assert "**fixed**: remove `5.9` from it (matrix.yaml line 3)" in markdown.render(report)


def test_summary_names_a_dozen_rows_and_counts_the_others():
    rows = tuple(row for row in sample_report().rows if row.model == "falcon") * 15
    report = sample_report().model_copy(update={"rows": rows})
    lines = summary(report, Path("r.md"))
    assert sum(line.startswith("  falcon/") for line in lines) == 12
    assert "  … and 3 more" in lines


def test_summary_shows_no_control_character():
    report = sample_report(message="\x1b[2J").model_copy(update={"matrix": "\x1b"})
    assert all(line.isprintable() for line in summary(report, Path("r\x1b.md")))


def test_report_json_reads_back():
    assert Report.model_validate_json(machine.render(sample_report())) == sample_report()


def test_report_json_writes_what_json_has_no_number_for_as_text():
    text = machine.render(sample_report().model_copy(update={"seconds": float("nan")}))
    assert json.loads(text)["seconds"] == "NaN"


def test_report_json_survives_a_name_that_is_no_utf8():
    text = machine.render(sample_report().model_copy(update={"command": "a\udcff\\"}))
    assert json.loads(text.encode())["command"] == "a\\udcff\\"


def test_write_puts_everything_in_its_place(tmp_path):
    folder = tmp_path / "reports" / "latest"
    written = write.write(sample_report(), folder, {f"locks/{s}.txt": f"# {s}\n" for s in STACKS})
    assert written.markdown.read_text("utf-8") == markdown.render(sample_report())
    assert json.loads(written.json.read_text("utf-8"))["matrix"] == "matrix.yaml"
    links = re.findall(r"\[lock\]\(([^)]+)\)", written.markdown.read_text("utf-8"))
    assert len(links) == len(STACKS)
    assert all((folder / link).is_file() for link in links)
    assert sorted(p.name for p in folder.iterdir()) == ["locks", "report.json", "report.md"]


def test_write_leaves_the_last_report_if_anything_goes_wrong(tmp_path, monkeypatch):
    first = write.write(sample_report(), tmp_path, {})
    before = first.markdown.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write.write(sample_report(message="other"), tmp_path, {"locks/a.txt": "x"})
    assert first.markdown.read_bytes() == before
    assert not [p for p in tmp_path.rglob("*") if p.name.startswith(".")]


def test_write_works_where_folders_cannot_be_opened(tmp_path, monkeypatch):
    monkeypatch.delattr(write.os, "O_DIRECTORY")
    assert write.write(sample_report(), tmp_path, {}).markdown.is_file()


@pytest.mark.parametrize("name", ["../a.txt", "/etc/a.txt", "locks/../../a"])
def test_write_stays_in_its_folder(tmp_path, name):
    with pytest.raises(ValueError, match="outside of the report's folder"):
        write.write(sample_report(), tmp_path, {name: ""})
    assert not list(tmp_path.iterdir())
