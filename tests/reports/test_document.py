import hashlib
import json
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import pytest
from hypothesis import given, settings

from samebits.pipeline import trim
from samebits.questions.registry import rules
from samebits.records.capture import AttentionSignal, Failure
from samebits.records.comparison import (
    Difference,
    Extreme,
    FactChange,
    ItemComparison,
    SignalComparison,
)
from samebits.records.finding import Finding
from samebits.records.ids import Variant, Verdict
from samebits.records.report import SCHEMA_VERSION, ExpectedReport, PackagesReport, StackReport
from samebits.records.subject import Subject
from samebits.reports import details, document, write
from samebits.reports import json as reports_json
from samebits.reports.cell.tensors import growth_line
from samebits.reports.head import MAX_WIDTH, head, notes
from samebits.reports.html.addresses import HOME
from samebits.reports.html.site import folder
from samebits.reports.sections.overview import headline
from samebits.reports.stories import since, troubles
from samebits.schemas import FOLDER as SCHEMAS
from samebits.terminal.summary import summary
from samebits.text.markdown import prose
from tests.support.pages import (
    GFM,
    anchors_of,
    assert_gold,
    beside_models,
    links_of,
    pages_of,
    structure,
    texts,
    uncut,
)
from tests.support.sample_report import (
    STACKS,
    attention,
    each_cell,
    ended,
    known_as,
    metrics,
    only_rows,
    renamed,
    sample_report,
    with_cells,
    with_rows,
)
from tests.support.sample_report import cell as sample_cell
from tests.support.sample_report import stacks as sample_stacks

STACK_REPORTS = sample_stacks()
VARIANT = Variant(dtype="float32", attention="sdpa")


def rendered(report):
    """report.md, and the pages beside it that are not of a model."""
    return beside_models(document.render(report))


def everything(report):
    """report.md and all pages, one after the other, as no reader gets them."""
    return "\n".join(document.render(report).values())


def test_report_md():
    assert_gold("report.md", document.render(sample_report())["report.md"])


@pytest.mark.parametrize("path", details.PATHS)
def test_page_of_a_subject(path):
    assert_gold(path, document.render(sample_report())[path])


@pytest.mark.parametrize("model", ["gemma2", "falcon", "whisper"])
def test_page_of_a_model(model):
    path = f"models/{model}.md"
    assert_gold(path, document.render(sample_report())[path])


def test_report_json():
    assert_gold("report.json", reports_json.render(only_rows("falcon")))


def test_summary():
    assert_gold(
        "summary.txt", "\n".join(summary(sample_report(), [Path("reports/latest/report.md")]))
    )


def test_the_report_says_which_models_have_several_threads():
    report = sample_report()
    rows = [
        row.model_copy(update={"threads": 4}) if row.model == "gemma2" else row
        for row in report.rows
    ]
    changed = document.render(report.model_copy(update={"rows": tuple(rows)}))
    assert re.search(r"threads per cell +\| `1; 4 for gemma2`", beside_models(changed))
    assert "run with 4 threads" in changed["models/gemma2.md"]
    assert "run with" not in changed["models/falcon.md"]


def test_every_verdict_is_in_the_sample():
    assert {cell.verdict for cell in sample_report().cells} == set(Verdict)


@settings(max_examples=15, deadline=None)
@given(texts, texts, texts)
def test_names_messages_and_tokens_change_no_structure(name, message, token):
    with uncut():
        plain = structure(everything(sample_report("x", "x", "x")))
        hostile = structure(everything(sample_report(f"x{name}", f"x{message}", f"x{token}")))
    assert hostile == plain


def test_html_is_that_of_folded_parts_alone():
    text = everything(sample_report(*["<img src=x><details>"] * 3))
    html = [t.content for t in GFM.parse(text) if t.type == "html_block"]
    inline = [c for t in GFM.parse(text) for c in t.children or [] if c.type == "html_inline"]
    tags = set(re.findall(r"</?\w+", "".join(html)))
    assert tags == {"<details", "<summary", "</summary", "</details"}
    assert not inline


@pytest.mark.parametrize("text", ["", "<x>/%41 b"])
@pytest.mark.parametrize("copies", [1, 8])
def test_every_link_leads_to_a_heading_or_a_file(text, copies):
    documents = document.render(many(sample_report(text), copies))
    n_links = 0
    for path, content in documents.items():
        for target in links_of(content):
            if (
                not target.startswith(("https://", "locks/"))
                and posixpath.basename(target) != "report.json"
            ):
                file, _, anchor = target.partition("#")
                other = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(file)))
                linked = documents[other] if file else content
                assert not anchor or unquote(anchor) in anchors_of(linked), (path, target)
                n_links += 1
    assert n_links > 20


def many(report, copies):
    """The report with every model that many times, under other names."""
    rows = tuple(
        renamed(row, model=f"{row.model}{'' if i == 0 else i}")
        for i in range(copies)
        for row in report.rows
    )
    return report.model_copy(update={"rows": rows})


def test_a_run_that_passes_says_so():
    report = sample_report().model_copy(update={"exit_code": 0, "reasons": (), "rows": ()})
    text = rendered(report)
    assert text.startswith("# samebits: matrix.yaml: nothing was compared\n")
    assert "passes" not in text
    assert "## What changed" not in text
    lines = summary(report, [Path("r.md")])
    assert lines[:2] == ["Report: r.md", "matrix.yaml: nothing was compared."]


def test_the_heading_counts_new_and_known_differences_and_never_says_only_that_it_passes():
    text = rendered(ended(only_rows("mamba", "llama")))
    known = "nothing new; known: 1 model differs and may change behaviour; 1 is identical"
    assert text.startswith(f"# samebits: matrix.yaml: {known}\n")
    failing = rendered(ended(only_rows("falcon", "t5-deep", "llama")))
    assert failing.startswith("# samebits: matrix.yaml: 2 models fail; 1 is identical\n")


def test_a_known_difference_has_a_mark_on_its_number_that_the_report_explains():
    text = rendered(only_rows("mamba", "llama"))
    assert "undecided logits 3.0e-06 \u2020" in text
    mark = "\u2020 marks a known difference: the matrix file lists it under `expected`"
    assert text.index(mark) < text.index("undecided logits 3.0e-06 \u2020")
    assert "\u2020" not in rendered(only_rows("falcon", "llama"))


def test_the_first_lines_say_which_release_a_family_is():
    report = sample_report()
    stacks = tuple(
        stack.model_copy(update={"id": "5.x"} if stack.id == "5.23" else {})
        for stack in report.stacks
    )
    assert ", 5.x is 5.23.0" in headline(report.model_copy(update={"stacks": stacks}))
    assert ".x is" not in headline(report)


def test_report_md_counts_the_pages_of_models_and_verdicts_md_links_each():
    files = document.render(sample_report())
    pages = [path for path in files if path.startswith("models/")]
    assert f"- models/: {len(pages)} pages, one for each model with details;" in files["report.md"]
    assert all(f"({path}" in files["verdicts.md"] for path in pages)


def steps_of(report):
    """step and what -> the models, of the table that goes from one environment to the next."""
    lines = rendered(report).partition("from one environment to the next")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.split("|")] for line in lines.splitlines()]
    models = {(line[1].replace("\u00a0", " "), line[2]): line[4] for line in cells if len(line) > 5}
    return {key: which for key, which in models.items() if not which.startswith((":", "which"))}


def test_a_model_that_differs_in_another_way_than_before_is_named_again_and_one_that_rounds_otherwise_is_not():
    row = only_rows("mamba").rows[0]
    other = differing("logits", item(name="short", metrics=metrics(0.5))).signals

    def steps_with(**changed):
        cells = (*row.cells[:-1], row.cells[-1].model_copy(update=changed))
        return list(steps_of(with_rows(with_cells(row, *cells))))

    assert list(steps_of(only_rows("mamba"))) == [("4.57 → 5.0", "may change")]
    assert steps_with(signals=other)[1:] == []
    assert steps_with(signals=other, figure="logits 0.5")[1:] == [
        ("5.9 → 5.23", "may change again")
    ]


def test_a_step_names_the_defects_that_begin_there():
    row = only_rows("falcon").rows[0]
    crash = Finding(code="SB701", where="cache.py:3", evidence=("seen",))
    saved = (Finding(code="SB701", where="saved by 5.9", evidence=("seen",), saver="5.9"),)
    cells = (
        known_as(c, crash)
        if c.verdict == Verdict.FAILED
        else c.model_copy(update={"findings": saved})
        for c in row.cells
    )
    report = with_rows(with_cells(row, *cells), rules=texts_of("SB701"))
    assert steps_of(report) == {("5.0 → 5.9", "raise"): "[falcon](models/falcon.md) (SB701)"}


def finding_in(model, verdict, code, where="cache.py:3", saver=""):
    """The sample's one model, with a finding of this rule in its cells of a verdict."""
    row = only_rows(model).rows[0]
    findings = (Finding(code=code, where=where, evidence=("seen",), saver=saver),)
    cells = (
        known_as(c, *(findings if c.verdict == verdict and not verdict.passes else ())).model_copy(
            update={"findings": findings if c.verdict == verdict else ()}
        )
        for c in row.cells
    )
    return with_rows(with_cells(row, *cells), rules=texts_of(code))


def texts_of(code):
    return tuple(rule.text for rule in rules() if rule.code == code)


def test_what_needs_attention_says_by_which_name_it_is_known():
    report = finding_in("falcon", Verdict.FAILED, "SB701")
    attention = rendered(report).partition("## Needs attention")[2].partition("\n## ")[0]
    assert "| SB701 " in attention
    assert any("(SB701). To do: " in line for line in summary(report, [Path("r.md")]))
    quiet = rendered(finding_in("falcon", Verdict.IDENTICAL, "SB701"))
    assert "SB701" not in quiet.partition("## Needs attention")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("code", "verdict", "where", "saver", "folds"),
    [
        ("SB701", Verdict.FAILED, "cache.py:3", "", False),
        ("SB309", Verdict.FAILED, "names in memory", "", False),
        ("SB309", Verdict.IDENTICAL, "names in memory", "", True),
        ("SB802", Verdict.IDENTICAL, "save_pretrained of the tokenizer", "5.9", True),
        ("SB203", Verdict.IDENTICAL, "saved by 5.9", "5.9", True),
    ],
)
def test_a_finding_that_moves_no_number_of_its_cells_is_folded(code, verdict, where, saver, folds):
    text = document.render(finding_in("falcon", verdict, code, where, saver))["models/falcon.md"]
    assert (f"<summary>{code} " in text) == folds
    assert (f"### {code} " in text) != folds


@pytest.mark.parametrize("n", [12, 13])
def test_what_many_rules_say_is_folded_under_one_title(n):
    report = sample_report().model_copy(
        update={"rules": tuple(rule.text for rule in rules() if rule.text.scope == "model")[:n]}
    )
    text = rendered(report).partition("## Findings")[2].partition("\n## ")[0]
    assert text.count("**Remedy.**") == n
    assert text.count("<details>") == text.count("</details>") == n + (n > 12)
    assert ("<summary>Cause and remedy of each</summary>" in text) == (n > 12)


def test_an_explanation_without_cells_is_not_shown():
    report = sample_report()
    entry = report.expected[0]
    assert "The scan is a sum" in rendered(report)
    gone = report.model_copy(update={"expected": (entry.model_copy(update={"cells": ()}),)})
    assert "The scan is a sum" not in rendered(gone)


def test_an_empty_report_is_no_crash():
    report = sample_report().model_copy(
        update={"rows": (), "stacks": (), "checkpoints": (), "expected": (), "machine": None}
    )
    assert "0 models" in headline(report)
    assert "## Machine" not in rendered(report)


def test_headline_counts_the_cells_that_were_compared():
    report = only_rows("llama")
    assert headline(report) == (
        "8 comparisons (1 model in 2 variants, 6 releases, 1 not built): 8 identical."
    )


def raising_on(*stacks, reference):
    """The sample with a row that raises on these stacks, and is compared with another one."""
    row = next(row for row in sample_report().rows if row.model == "llama")
    cells = {cell.cell.stack: cell for cell in row.cells}
    raised = {
        "verdict": Verdict.FAILED,
        "judged": Verdict.FAILED,
        "failure": Failure(phase="load", type="E", message="", traceback=""),
    }
    sound = {"verdict": Verdict.REFERENCE, "judged": Verdict.REFERENCE, "reference": None}
    changed = {**dict.fromkeys(stacks, raised), reference: sound}
    found = [cell.model_copy(update=changed.get(stack, {})) for stack, cell in cells.items()]
    return with_rows(with_cells(row, *found, reference=reference))


def test_headline_says_apart_what_raises_in_the_reference_alone():
    assert headline(raising_on("4.48", reference="4.57")).endswith(
        "3 identical, 1 raises in the reference alone."
    )
    assert headline(raising_on("5.9", reference="4.48")).endswith("3 identical, 1 failed.")
    # a candidate raises, too: the upgrade does not repair it
    assert headline(raising_on("4.48", "5.9", reference="4.57")).endswith("2 identical, 2 failed.")


def test_headline_counts_a_failure_of_every_release_once_and_as_none_of_a_candidate():
    assert headline(only_rows("t5-bare")).endswith("4 identical, 1 raises in every release.")
    assert headline(only_rows("vanished")).endswith(" 0 identical, 1 raises in every release.")


def test_since_names_the_stacks_that_are_good_again():
    row = next(row for row in sample_report().rows if row.model == "opensci-ref")
    assert since(row, ["5.0"]) == "5.0 (last good: 4.57; good again: 5.9)"
    assert since(row, ["4.48"]) == "4.48 (good again: 4.57, 5.9)"


def ran(signals):
    """The fields of a row whose stacks ran these attentions."""
    attention, calls = trim.attention(signals)
    return {"attention": attention, "calls": calls}


def with_attention(*signals):
    """The sample with one row, whose stacks ran these attentions."""
    row = sample_report().rows[0]
    return with_rows(row.model_copy(update=ran(dict(zip(STACKS, signals, strict=False)))))


def test_attention_that_was_not_observed_is_said_to_be():
    nothing = AttentionSignal(requested="sdpa", resolved=None)
    text = rendered(with_attention(nothing, attention(gqa=False)))
    assert re.search(r"\| `sdpa → unknown` +\| not observed ", text)


def test_attention_without_sdpa_has_no_arguments_of_it():
    eager = attention(gqa=False)
    calls = {"short": tuple(c.model_copy(update={"sdpa": None}) for c in eager.calls["short"])}
    report = with_attention(AttentionSignal(requested="eager", resolved="eager", calls=calls))
    text = rendered(report)
    assert "In every row, all environments used the same attention kernels." in text
    assert "enable_gqa" not in text


def test_no_attention_no_section():
    assert "## Attention" not in rendered(with_attention())


def test_stacks_without_a_difference_say_so():
    stacks = tuple(stack.model_copy(update={"packages": {"a": "1"}}) for stack in STACK_REPORTS)
    report = sample_report().model_copy(update={"stacks": stacks})
    assert "Every package has the same version in every environment." in rendered(report)


def test_a_machine_without_variables():
    reports_json = sample_report().machine.model_copy(update={"environment": {}})
    report = sample_report().model_copy(update={"machine": reports_json})
    assert "environment variable" not in rendered(report)


def only(cell):
    """The sample with the one cell."""
    return everything(with_rows(with_cells(sample_report().rows[0], cell)))


def differing(signal, *items):
    comparison = SignalComparison(
        signal=signal, outcome="differs", n_items=9, n_differ=len(items), items=items
    )
    return sample_cell(
        "m", VARIANT, "5.0", Verdict.UNDECIDED, signals=(comparison,), reference=None
    )


def item(**fields):
    subject = Subject(tensor=fields.pop("name", "a"))
    return ItemComparison(**{"subject": subject, "outcome": "differs"} | fields)


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


def test_decode_gets_what_logits_get_in_its_own_words():
    top = (Extreme(index=(2, 7), reference=0.0, candidate=1.0, token="7"),)
    measured = metrics(1.0, top=top, kl_max=0.5, n_argmax=1, n_positions=4)
    text = only(differing("decode", item(metrics=measured)))
    assert "- `a`: argmax changes at 1 of 4 (25.0 %) greedy steps; KL" in text
    assert "at most 5.0e-01 nats\n" in text
    assert "The largest difference between the logits of the greedy steps of `a`:" in text
    assert "| `[2, 7]` " in text
    assert "argmax changes" not in only(differing("hidden_states", item(metrics=measured)))


def test_padding_rows_without_figures():
    text = only(differing("hidden_states", item(outcome="identical", pad_rows="differ")))
    assert "padding rows, which do not affect the verdict, differ" in text


def test_padding_rows_of_many_layers_are_one_line():
    layers = [item(name=f"layer {n}", pad_rows="differ", pad_metrics=metrics(n)) for n in (1, 3, 2)]
    text = only(differing("hidden_states", *layers))
    assert text.count("\n- padding rows, which do not affect the verdict, differ by up to") == 1
    assert "differ by up to 3.0e+00" in text


def test_many_tensors_are_cut_and_counted():
    items = [item(name=f"w{i}", metrics=metrics(1.0)) for i in range(250)]
    assert "… and 242 more in report.json." in only(differing("weights", *items))


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
    text = rendered(report)
    assert "`121212121212`" in text
    assert re.search(r"\[lock\]\(b\.txt\) +\|", text)


def test_part_of_an_entry_can_be_fixed():
    entry = ExpectedReport(line=3, text="a", reason="b", cells=("c",), fixed=("5.9",))
    report = sample_report().model_copy(update={"expected": (entry,)})
    assert "**fixed**: remove `5.9` from it (matrix.yaml line 3)" in rendered(report)


def test_a_reference_that_was_left_out_is_not_called_one():
    report = sample_report()
    assert "Reference: `4.48`." in rendered(report)
    text = rendered(report.model_copy(update={"stacks": report.stacks[1:]}))
    assert "Reference: `" not in text
    assert "The reference of the matrix, `4.48`, is not in this run." in text


def test_entries_about_another_comparison_are_said_to_cover_nothing():
    entry = ExpectedReport(line=3, text="a", reason="b", untold=("llama/float32@5.9",))
    text = rendered(sample_report().model_copy(update={"expected": (entry,)}))
    assert "the entries compare them with: `llama/float32@5.9`." in text
    assert "still occurs" not in text
    both = entry.model_copy(update={"cells": ("qwen/float32@5.9",)})
    text = rendered(sample_report().model_copy(update={"expected": (both,)}))
    assert "entry that still occurs" in text
    assert "the entries compare them with: `llama/float32@5.9`." in text


def test_a_model_that_fails_as_a_filter_left_out_its_reference_is_named_on_top():
    report = sample_report()
    fails = next(cell for cell in report.cells if not cell.verdict.passes)
    passes = next(cell for cell in report.cells if cell.verdict is Verdict.IDENTICAL)
    entry = ExpectedReport(line=3, text="a", reason="b", untold=(str(passes.cell),))
    words = "for a run of all environments: in this one, of some, it counts as new"
    assert words not in " ".join(notes(report.model_copy(update={"expected": (entry,)})))
    entry = entry.model_copy(update={"untold": (str(passes.cell), str(fails.cell))})
    text = " ".join(notes(report.model_copy(update={"expected": (entry,)})))
    assert f"{report.matrix} lists what differs in {fails.cell.model} {words}" in text
    page = folder(report.model_copy(update={"expected": (entry,)}), ())[HOME]
    assert f"{fails.cell.model} {words}" in page


def test_summary_says_why_a_model_is_absent_from_all_stacks():
    row = only_rows("falcon").rows[0]
    reason = "no falcon here"
    absent = each_cell(row, verdict=Verdict.ABSENT, judged=Verdict.ABSENT, absent=reason)
    line = f"falcon is absent from all environments: {reason}"
    assert line in summary(with_rows(absent), [Path("r.md")])
    one_present = with_cells(row, row.cells[0], *absent.cells[1:])
    assert line not in summary(with_rows(one_present), [Path("r.md")])


def test_summary_names_the_worst_rows_and_counts_the_others():
    report = many(only_rows("falcon"), 15)
    lines = summary(report, [Path("r.md")])
    assert sum(line.startswith("falcon") for line in lines) == 3
    assert "… and 12 more differences" in lines


def test_the_terminal_ends_with_the_lines_on_top_of_the_report():
    for report in (sample_report(), sample_report(message=" *x* `y` <z>"), only_rows("llama")):
        lines = head(report)
        assert summary(report, [Path("r.md")])[-len(lines) :] == lines
        top = document.render(report)["report.md"].split("\n\n")[1]
        assert top.splitlines() == [f"- {prose(line, 500)}" for line in notes(report)]
        assert lines[1].startswith(notes(report)[0][:150])


def test_sentences_of_the_summary_are_broken_for_a_terminal_between_words_and_commands_never():
    lines = summary(sample_report(), [Path("r.md")], 40)
    assert all(len(line) <= 40 for line in lines if not line.startswith(("Next: ", "Report: ")))
    joined = " ".join(line.removeprefix("  ") for line in lines)
    assert joined == " ".join(summary(sample_report(), [Path("r.md")]))
    assert any(line.startswith("Next: ") and len(line) > 40 for line in lines)


def test_summary_has_short_lines():
    report = sample_report(message="x" * 1000)
    assert max(map(len, summary(report, [Path("r.md")]))) <= 2 * MAX_WIDTH


def test_summary_shows_no_control_character():
    report = sample_report(message="\x1b[2J").model_copy(update={"matrix": "\x1b"})
    assert all(line.isprintable() for line in summary(report, [Path("r\x1b.md")]))


def test_report_json_writes_what_json_has_no_number_for_as_text():
    text = reports_json.render(sample_report().model_copy(update={"seconds": float("nan")}))
    assert json.loads(text)["seconds"] == "NaN"


def test_report_json_survives_a_name_that_is_no_utf8():
    text = reports_json.render(sample_report().model_copy(update={"command": "a\udcff\\"}))
    assert json.loads(text.encode())["command"] == "a\\udcff\\"


def test_write_puts_everything_in_its_place(tmp_path):
    folder = tmp_path / "reports" / "latest"
    written = write.write(sample_report(), folder, {f"locks/{s}.txt": f"# {s}\n" for s in STACKS})
    documents = document.render(sample_report())
    assert all((folder / path).read_text("utf-8") == text for path, text in documents.items())
    assert json.loads(written.json.read_text("utf-8"))["matrix"] == "matrix.yaml"
    links = re.findall(r"\[lock\]\(([^)]+)\)", documents["environment.md"])
    assert len(links) == len(STACKS)
    assert all((folder / link).is_file() for link in links)
    assert sorted(p.name for p in folder.iterdir()) == [
        "environment.md",
        "findings.md",
        "html",
        "locks",
        "models",
        "relations.md",
        "report.html",
        "report.json",
        "report.md",
        "verdicts.md",
    ]
    assert {p.name for p in (folder / "models").iterdir()} == {
        posixpath.basename(path) for path in document.render(sample_report()) if "/" in path
    }


def test_write_removes_the_pages_of_other_runs_alone(tmp_path):
    write.write(sample_report(), tmp_path, {})
    write.write(only_rows("gemma2"), tmp_path, {})
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["gemma2.md"]


def test_write_removes_nothing_that_is_not_of_an_earlier_report(tmp_path):
    """A folder of the user's own may have the name of one of ours, and its files any name."""
    for name in ("models/mine.md", "models/mine.txt", "api-checks.md", "repro/a/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    written = write.write(only_rows("gemma2"), tmp_path, {"repro/c@5.x/d.py": b"x"})
    edited = tmp_path / "models" / "gemma2.md"
    edited.write_text("edited")
    write.write(only_rows("falcon"), tmp_path, {})
    assert all(path.read_text() == "mine" for path in before)
    assert edited.read_text() == "edited"
    assert not (tmp_path / "repro" / "c@5.x").exists()
    assert (tmp_path / "repro" / "a" / "b.py").exists()
    assert written.json.exists()


@pytest.mark.parametrize("name", ["../mine.txt", "/mine.txt", "link/mine.txt", "models", "gone.md"])
def test_write_believes_no_list_that_leads_elsewhere(tmp_path, name):
    folder, mine = tmp_path / "report", tmp_path / "mine.txt"
    mine.write_text("mine")
    write.write(only_rows("gemma2"), folder, {})
    (folder / "link").symlink_to(tmp_path)
    digest = hashlib.sha256(b"mine").hexdigest()
    listed = str(mine) if name.startswith("/") else name
    whole = json.loads((folder / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps(whole | {"files": {listed: digest}}))
    write.write(only_rows("gemma2"), folder, {})
    assert mine.read_text() == "mine"
    assert (folder / "models" / "gemma2.md").exists()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "{}", '{"files": 3}', "[" * 100_000],
    ids=lambda text: text[:9] or "empty",
)
def test_write_removes_nothing_where_it_cannot_read_what_was_left(tmp_path, text):
    write.write(sample_report(), tmp_path, {})
    before = {path.name for path in (tmp_path / "models").iterdir()}
    (tmp_path / "report.json").write_text(text)
    write.write(only_rows("gemma2"), tmp_path, {})
    assert {path.name for path in (tmp_path / "models").iterdir()} == before


def test_write_puts_capsules_beside_the_report_and_removes_those_of_other_runs(tmp_path):
    old = {f"repro/{name}": b"\x00" for name in ("old@5.x/checkpoint/w.bin", "kept@5.x/old.py")}
    write.write(sample_report(), tmp_path, {"locks/a.txt": "x", **old})
    assert (tmp_path / "repro" / "old@5.x" / "checkpoint" / "w.bin").read_bytes() == b"\x00"
    write.write(sample_report(), tmp_path, {"repro/kept@5.x/new.py": b"new"})
    assert [p for p in (tmp_path / "repro").rglob("*") if p.is_file()] == [
        tmp_path / "repro" / "kept@5.x" / "new.py"
    ]
    assert not (tmp_path / "repro" / "old@5.x").exists()
    write.write(sample_report(), tmp_path, {})
    assert not (tmp_path / "repro").exists()


def test_write_does_not_follow_a_link_that_stands_where_capsules_go(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "a.txt").write_text("kept")
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "repro").symlink_to(mine)
    write.write(sample_report(), tmp_path / "report", {})
    assert (mine / "a.txt").is_file()


def test_write_leaves_the_last_report_if_anything_goes_wrong(tmp_path, monkeypatch):
    first = write.write(sample_report(), tmp_path, {})
    before = first.opened[0].read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write.write(sample_report(message="other"), tmp_path, {"locks/a.txt": "x"})
    assert first.opened[0].read_bytes() == before
    assert not [p for p in tmp_path.rglob("*") if p.name.startswith(".")]


@pytest.mark.parametrize("name", ["../a.txt", "/etc/a.txt", "locks/../../a"])
def test_write_stays_in_its_folder(tmp_path, name):
    with pytest.raises(ValueError, match="outside of the report's folder"):
        write.write(sample_report(), tmp_path, {name: ""})
    assert not list(tmp_path.iterdir())


def test_the_worst_rows_come_first_and_the_others_are_counted():
    text = document.render(many(only_rows("falcon"), 40))["report.md"]
    shown = text.count("All details: [models/falcon")
    assert 4 < shown < 20
    assert text.count("- **5.9, 5.23** failed (forward short): forward short: Attr") == shown
    assert f"{40 - shown} more differences: the models' pages have them." in text
    order = [trouble.shared.first.verdict for trouble in troubles(sample_report())]
    assert order == [
        *["failed"] * 4,
        *("unstable", "diverged", "undecided", "not finished", "not observed", "fixed"),
    ]


def test_many_troubles_are_counted_by_kind_and_first_stack():
    text = rendered(many(sample_report(), 2))
    assert re.search(r"\| undecided, first in hidden_states +\|( +\|){2} +2 \|( +\|){2}\n", text)
    assert "Rows by problem" not in rendered(only_rows("falcon"))


def variants_of(model, count=2):
    """The sample with one row in several dtypes."""
    row = only_rows(model).rows[0]
    dtypes = ("float32", "bfloat16", "float16")[:count]
    return with_rows(*(in_dtype(row, dtype) for dtype in dtypes))


def in_dtype(row, dtype):
    return renamed(row, variant=Variant(dtype=dtype, attention="sdpa"))


def test_variants_with_one_story_share_a_block():
    text = document.render(variants_of("falcon"))["models/falcon.md"]
    assert "\n## falcon/float32-sdpa, bfloat16-sdpa\n" in text
    assert "\n### 5.9, 5.23: failed" in text
    assert text.count("AttributeError: 'DynamicCache'") == 1
    assert "On 5.9:" in text


def test_variants_with_other_bits_are_told_apart_within_their_block():
    rows = variants_of("gemma2", 3).rows
    other = rows[1].cells[3].model_copy(update={"figure": "logits 9.9e-01"})
    second = with_cells(rows[1], *rows[1].cells[:3], other, *rows[1].cells[4:])
    text = everything(with_rows(rows[0], second))
    assert "\n### float32-sdpa@5.0,5.9; bfloat16-sdpa@5.0: undecided" in text
    assert "\n### bfloat16-sdpa@5.9: undecided logits 9.9e-01" in text


def test_known_differences_stand_once_under_their_reason():
    assert "- the scan was rewritten (<https://github.com/" in rendered(only_rows("mamba"))
    text = rendered(variants_of("mamba"))
    block = text[text.index("## Differences that do not fail") :]
    assert block.count("the scan was rewritten") == 1
    anchor = "models/mamba.md#mambafloat32-sdpa-bfloat16-sdpa"
    assert (
        f"  - **5.0**: [mamba · float32-sdpa]({anchor}) (logits 3.0e-06), "
        f"[mamba · bfloat16-sdpa]({anchor}) (logits 3.0e-06): logits differ on 5.0\n"
    ) in block


def test_a_reason_is_given_in_full_once_and_its_items_are_neighbours():
    long = f"the scan was rewritten {'and ' * 40}that is all"
    row = variants_of("mamba").rows[0]

    def expecting(dtype, *reasons):
        cells = (
            c.model_copy(update={"expected": reasons if c.expected else ()}) for c in row.cells
        )
        return in_dtype(with_cells(row, *cells), dtype)

    rows = [("float32", "a window", long), ("float16", long), ("bfloat16", "a window")]
    text = rendered(with_rows(*(expecting(*r) for r in rows)))
    block = text[text.index("## Differences that do not fail") :]
    items = [line for line in block.splitlines() if line.startswith("- ")][:3]
    assert items[0].startswith("- a window And: the scan was rewritten and and")
    assert items[0].endswith("that is all")
    assert items[1] == "- a window"
    assert items[2].startswith("- the scan was rewritten and and")
    assert items[2].endswith("…")


def test_growth_is_one_line_for_the_prompt_where_it_is_largest():
    layers = [
        item(subject=Subject(prompt=prompt, layer=i), metrics=metrics(size))
        for prompt, factor in (("short", 1), ("long", 2))
        for i, size in enumerate(factor * 2.0**n for n in range(20))
    ]
    first = Subject(prompt="long", layer=0)
    cell = differing("hidden_states", item(subject=first, outcome="identical"), *layers)
    line = growth_line(cell)
    assert line.startswith("layers 0→20 of `long`, max abs: 0, 2.0e+00, 4.0e+00, ")
    assert line.endswith(", …, 2.6e+05, 5.2e+05, 1.0e+06")
    assert growth_line(differing("logits", *layers)) == ""
    unknown = item(subject=first, outcome="not compared")
    assert growth_line(differing("hidden_states", unknown)) == ""


def test_growth_counts_layers_of_equal_size():
    layers = [Subject(prompt="a", layer=i) for i in range(4)]
    same = [item(subject=layer, outcome="identical") for layer in layers[:3]]
    last = item(subject=layers[3], metrics=metrics(0.5))
    line = growth_line(differing("hidden_states", *same, last))
    assert line == "layers 0→3 of `a`, max abs: 0 (3 layers), 5.0e-01"


def test_a_signal_without_items_to_show_has_no_table():
    assert "buffers: what differs" not in only(differing("buffers"))


def changed(kind, *changes):
    """The text about cells where these facts changed."""
    facts = tuple(FactChange(what=w, reference=r, candidate=c) for w, r, c in changes)
    cell = sample_cell("m", VARIANT, "5.0", Verdict.UNDECIDED, changes={kind: facts})
    return only(cell)


def test_config_fields_that_do_nothing_share_a_line():
    text = changed(
        "config",
        ("top_k", 50, "absent"),
        ("num_beams", 1, "absent"),
        ("top_h", 50, "absent"),
        ("scale", "absent", 1.0),
        ("use_cache", True, "absent"),
        ("tie", False, True),
    )
    assert "config: 2 fields only in the reference, off or at a default: top_k, num_beams." in text
    assert "config: 1 field only in the candidate, off or at a default: scale." in text
    assert "config: 3 changes, which may explain it" in text
    assert re.search(r"\| `use_cache` +\| `True` +\| absent \|", text)


def test_tuples_and_lists_are_shown_alike():
    text = changed("load", ("messages", ("a",), []))
    assert re.search(r"`\['a'\]` +\| `\[\]` \|", text)


def attention_report(*changes, kernels):
    """The sample's row of changed attention, with other facts and kernels."""
    row = only_rows("gemma2").rows[0]
    row = each_cell(row, changes={"attention.kernel": changes})
    return everything(with_rows(row.model_copy(update=ran(kernels))))


ATTENTION_CHANGES = (
    FactChange(what="resolved", reference="sdpa", candidate="eager"),
    FactChange(
        what="short · model.layers.*.self_attn · sdpa.enable_gqa (4 times)",
        prompt="short",
        module="model.layers.*.self_attn",
        reference=False,
        candidate=True,
    ),
)


def test_attention_shows_what_can_matter_and_folds_what_is_only_written_otherwise():
    kernels = {
        stack: attention(gqa=stack >= "5", kernel="aten::bmm" if stack == "5.9" else "aten::x")
        for stack in STACKS
    }
    text = attention_report(*ATTENTION_CHANGES, kernels=kernels)
    assert "attention.kernel: for the whole model:\n" in text
    material = text[text.index("attention.kernel: changes that can affect the numbers") :]
    line = material.splitlines()[4]
    assert re.sub(r" +", " ", line) == (
        "| `model.layers.0-3.self_attn` | short, long | `aten` | 5.9 | `['aten::x']` | `['aten::bmm']` |"
    )
    assert "<summary>attention.kernel: 1 argument or name that changed</summary>" in text


def test_attention_that_only_is_written_otherwise_is_folded():
    kernels = {stack: attention(gqa=stack >= "5") for stack in STACKS}
    text = attention_report(ATTENTION_CHANGES[1], kernels=kernels)
    assert "what can change the numbers" not in text
    assert "<summary>attention.kernel: 1 argument or name that changed</summary>" in text
    text = attention_report(ATTENTION_CHANGES[0], kernels=kernels)
    assert "arguments and names" not in text


def test_attention_changes_are_all_shown_where_calls_were_not_observed():
    text = attention_report(*ATTENTION_CHANGES, kernels={})
    assert "attention.kernel: 2 changes, which may explain it" in text


def test_rows_that_go_over_to_another_kernel_are_joined():
    other = attention(gqa=False, kernel="aten::bmm")
    nothing = AttentionSignal(requested="sdpa", resolved=None)
    report = with_attention(
        attention(gqa=False), nothing, other, attention(gqa=True, kernel="aten::bmm")
    )
    text = rendered(many(report, 8))
    kernels = text[text.index("## Attention kernels") :]
    assert re.search(r"\| 5\.0 +\| +8 \| llama, llama1, .*llama5 and 2 more +\| sdpa by", kernels)
    assert "4 ways in which attention was run" in kernels
    page = document.render(report)["models/llama.md"]
    assert re.search(r"\| float32-sdpa \| 5\.0 +\| short, long \| `model\.layers\.0-3", page)


def test_only_models_with_something_to_tell_have_a_page():
    report = with_rows(each_cell(only_rows("llama").rows[0], changes={}))
    assert pages_of(document.render(report)) == []
    assert "[llama]" not in rendered(report)


def test_remarks_that_say_alike_of_many_models_are_one_line():
    text = rendered(many(only_rows("whisper"), 30))
    remarks = text[text.index("## Remarks on cells") : text.index("## Environments")]
    assert remarks.count("whisper") == 4
    assert re.search(r"\| +30 \| `whisper/float16-eager`, `whisper1/float16-eager` \|", remarks)


def test_what_needs_attention_is_short_and_keeps_its_figures():
    what = (
        "attention.kernel: model.layers.0.self_attn of prompt short is computed by another call "
        f"(masking no mask → a mask; scale {'x' * 200}), and its layer is the first that differs: "
        "348 of 432 elements, max abs 6.7e-06 (2,092,982,002 ULP)"
    )
    first = Difference(signal="attention.kernel", item="short", what=what)
    cell = sample_cell("m", VARIANT, "5.0", Verdict.UNDECIDED, first=first)
    text = only(cell.model_copy(update={"headline": what}))
    line = next(line for line in text.splitlines() if line.startswith("| [llama/"))
    words = line.rsplit(" | ", 1)[1].removesuffix(" |")
    assert words.startswith("attention.kernel: model.layers.0.self_attn: another call (masking")
    assert words.endswith("a…: max abs 6.7e-06 (2.1e+09 ULP)")
    assert len(words) in (109, 110)  # a blank before the cut is left out
    assert "(2.1e+09 ULP)" in text[text.index("**Differs first:**") :]
    assert "2,092,982,002" not in text


def test_report_json_leaves_out_defaults_and_fits_its_schema():
    text = reports_json.render(sample_report())
    values = json.loads(text)
    assert values["schema_version"] == SCHEMA_VERSION
    assert values["hash_algorithm"] == "blake3"
    assert "expected" not in values["rows"][0]["cells"][0]
    assert "null" not in json.dumps(values["stacks"])
    schema = json.loads((SCHEMAS / "report.schema.json").read_text("utf-8"))
    jsonschema.validate(values, schema)
    assert reports_json.read(text) == sample_report()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values | {"stacks": {"$ref": "#/rows/0"}}, schema)


def test_the_largest_differences_are_those_of_the_worst_prompt():
    top = (Extreme(index=(0, 1), reference=0.0, candidate=1.0),)
    items = [
        item(name=name, metrics=metrics(size, top=top)) for name, size in (("a", 1.0), ("b", 2.0))
    ]
    text = only(differing("logits", *items))
    assert text.count("The largest difference between the logits of") == 1
    assert "The largest difference between the logits of `b`" in text


def test_packages_of_models_are_shown_with_their_versions_or_why_there_are_none():
    entries = (
        PackagesReport(
            models=("mine", "twin"),
            stack="5.x",
            listed=("my-models>=1",),
            packages={"einops": "0.8", "my-models": "1.2"},
            lock="locks/5.x/mine.txt",
        ),
        PackagesReport(
            models=("mine", "twin"),
            stack="4.48",
            listed=("my-models>=1",),
            failure="Because my-models needs <transformers>",
        ),
    )
    text = rendered(sample_report().model_copy(update={"packages": entries}))
    assert re.search(r"\| mine, twin +\| 5.x +\| my-models>=1 .*einops 0.8, my-models 1.2", text)
    assert "(locks/5.x/mine.txt)" in text
    assert re.search(r"\| mine, twin +\| 4.48 .*not installed", text)
    assert "Because my-models needs <transformers>" in text
    assert "Packages of models" not in rendered(sample_report())
