"""Fixes drawn at random: the rule of the draw, its cases, what counts as found, and the page."""

import json
import random
import runpy
import sys
from datetime import UTC, datetime
from types import ModuleType

import pytest
import yaml
from pydantic import ValidationError

from bench.fixes import draw, page, proof, run
from bench.fixes.judge import judge
from samebits.matrix.load import load
from samebits.questions.changes.section import SHOWN
from samebits.records.question import switches

DRAWN = sorted(draw.DRAWS.glob("*.yaml"))
REASONS = (
    "needs GPU",
    "needs several devices",
    "needs network or hub weights",
    "package missing",
    "no observable output on CPU",
    "not in both releases",
    "refactor without effect",
    "needs custom code",
    "not transformers use",
    "not proven",
    "looked at",
)
"""What a skip may begin with."""
MODELING = "src/transformers/models/opt/modeling_opt.py"


def commit(subject, *files):
    return draw._commit(
        "\n".join([f"{'a' * 40}\x1f2026-03-04T10:00:00+01:00\x1f{subject}", *files])
    )


@pytest.mark.parametrize(
    ("path", "area"),
    [
        (MODELING, "computation"),
        ("src/transformers/core_model_loading.py", "loading and saving"),
        ("src/transformers/models/t5/tokenization_t5.py", "tokenizer"),
        ("src/transformers/models/sam/image_processing_sam.py", "processor"),
        ("src/transformers/generation/utils.py", "generation"),
        ("src/transformers/loss/loss_utils.py", "loss"),
    ],
)
def test_the_rule_takes_a_fix_of_each_area(path, area):
    taken = commit("Fix the scale of OPT", path)
    assert taken.areas[0] == area
    assert taken.files == (path.removeprefix(draw.ROOT),)
    assert taken.time == datetime(2026, 3, 4, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    "subject", ["Add OPT", "Fix typo in OPT", "Fix flaky test of OPT", "prefix OPT"]
)
def test_the_rule_leaves_other_subjects(subject):
    assert commit(subject, MODELING) is None


@pytest.mark.parametrize(
    "path",
    ["tests/models/opt/test_modeling_opt.py", "src/transformers/trainer.py", "docs/source/en/opt.md",
     "src/transformers/models/opt/modeling_tf_opt.py"],
)  # fmt: skip
def test_the_rule_leaves_other_files(path):
    assert commit("Fix the scale of OPT", path) is None


def test_the_releases_around_a_commit_are_the_last_line_without_it_and_the_first_with_it():
    releases = {
        version: datetime(2026, month, 1, tzinfo=UTC)
        for version, month in [("5.1.0", 1), ("5.1.1", 4), ("5.2.0", 3), ("5.3.0", 5)]
    }
    assert draw.around(datetime(2026, 2, 1, tzinfo=UTC), releases) == ("5.1.1", "5.2.0")
    assert draw.around(datetime(2026, 4, 1, tzinfo=UTC), releases) == ("5.2.0", "5.3.0")
    assert draw.around(datetime(2026, 6, 1, tzinfo=UTC), releases) == ("", "")


def test_the_draw_of_a_seed_is_the_same_each_time_and_leaves_out_what_is_decided(
    monkeypatch, tmp_path
):
    log = "".join(
        f"\0{number:010x}{0:030}\x1f2026-03-04T10:00:00+00:00\x1fFix {number}\n\n{MODELING}\n"
        for number in random.Random(0).sample(range(16**9), 40)
    )
    monkeypatch.setattr(
        draw, "_git", lambda _, word, *__: log if "--name-only" in __ else "x 2026-03-04"
    )
    monkeypatch.setattr(draw, "LENGTH", 15)
    orders = {}
    for folder, seeds in {"a": (1, 2), "b": (1, 2)}.items():
        monkeypatch.setattr(draw, "DRAWS", tmp_path / folder)
        for seed in seeds:
            monkeypatch.setattr("sys.argv", ["draw", "clone", "--seed", str(seed)])
            draw.main()
            path = tmp_path / folder / f"{seed}.yaml"
            orders[folder, seed] = [c["sha"] for c in draw.drawn(path)]
            decide(path, 10)
    assert orders["a", 1] == orders["b", 1]
    assert orders["a", 2] == orders["b", 2]
    assert not {*orders["a", 1][:10]} & {*orders["a", 2]}
    assert {*orders["a", 1][10:]} & {*orders["a", 2]}
    assert orders["a", 1] != sorted(orders["a", 1])


def decide(path, count):
    record = yaml.safe_load(path.read_text("utf-8"))
    for entry in record["order"][:count]:
        entry["status"] = "proven"
    path.write_text(yaml.safe_dump(record), "utf-8")


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_draw_is_decided_in_its_order_without_a_gap_and_each_skip_has_a_reason(path):
    order = draw.drawn(path)
    decided = ["status" in entry for entry in order]
    assert decided == sorted(decided, reverse=True)
    for entry in order:
        if entry.get("status") == "skipped":
            assert entry["reason"].partition(":")[0] in REASONS, entry["sha"]
        else:
            assert entry.get("status") in (None, "proven")
            assert "reason" not in entry


def test_each_script_has_an_expectation_and_each_proven_case_a_script():
    scripts = {path.stem: proof.read(path) for path in proof.CASES.glob("*.py")}
    assert {entry["sha"] for _, entry in run.proven()} == {*scripts}
    for case in scripts.values():
        assert case.source
        assert case.signals or case.findings or case.failure or case.says


def test_a_script_states_what_differs_from_its_draw_and_has_the_rest_of_it(tmp_path):
    for path in proof.CASES.glob("*.py"):
        case, text = proof.read(path), path.read_text("utf-8")
        for name, value in proof._drawn(path.stem).items():
            assert (getattr(case, name) != value) == (f'    "{name}": "' in text), path.name
    script = tmp_path / "unknown.py"
    script.write_text('CASE = {"symptom": "x"}\n', "utf-8")
    with pytest.raises(ValidationError, match="before"):
        proof.read(script)


def test_an_expectation_changes_no_run(tmp_path):
    text = '"""x"""\n\nCASE = {\n    "before": "1", "after": "2", "made": "1", "symptom": "", "area": "",\n'
    first, second, third = (tmp_path / name for name in ("a.py", "b.py", "c.py"))
    first.write_text(text + "}\nX = 1\n", "utf-8")
    second.write_text(text + '    "says": ("y",),\n}\nX = 1\n', "utf-8")
    third.write_text(text + "}\nX = 2\n", "utf-8")
    assert run._script(first) == run._script(second) != run._script(third)


def case(**changes):
    values = {
        "before": "5.2.0",
        "after": "5.3.0",
        "made": "5.3.0",
        "symptom": "scaled twice",
        "area": "computation",
        "signals": ("logits",),
        "findings": ("SB906",),
        "says": ("scal(e|ing)",),
        "source": ("modeling_opt.py",),
    }
    return proof.Case.model_validate(values | changes)


def test_an_exception_proves_only_the_failure_that_the_case_names():
    raised, other = (
        {"raised": "KeyError: 'window'"},
        {"raised": "NameError: name 'x' is not defined"},
    )
    failing = case(failure="'window'")
    assert proof.is_proven(failing, raised, [2, 3])
    assert proof.is_proven(failing, raised, other)
    assert not proof.is_proven(failing, raised, raised)
    assert not proof.is_proven(failing, other, [2, 3])
    assert proof.is_proven(case(), 1, 2)


def test_an_exception_is_observed_of_a_case_that_names_a_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))

    def observe(name, case):
        script = tmp_path / f"{name}.py"
        script.write_text(f"CASE = {case}\ndef observe(folder):\n    raise KeyError(folder)\n")
        monkeypatch.setattr("sys.argv", ["part.py", str(script), "observe", "window"])
        runpy.run_path(str(proof.PART), run_name="__main__")

    observe("fails", {"failure": "'window'"})
    assert json.loads(capsys.readouterr().out) == {"raised": "KeyError: 'MODEL'"}
    with pytest.raises(KeyError):
        observe("differs", {"signals": ("logits",)})


def cell(verdict="identical", **more):
    return {"judged": verdict, "signals": [], "findings": [], **more}


def report(*cells, stacks=(), steps=()):
    answers = {"changes": {"steps": steps}} if steps else {}
    named = [
        cell | {"cell": {"stack": id}} for cell, id in zip(cells, ("5.2.0", "5.3.0"), strict=False)
    ]
    return {"rows": [{"cells": named, "answers": answers}], "stacks": [*stacks]}


def step(*names):
    return {"first": [{"name": name, "file": "models/opt/modeling_opt.py"} for name in names]}


DIFFERS = {"signals": [{"signal": "logits", "outcome": "differs"}]}
CAUSE = {"candidate": {"function": "OPTAttention.forward", "source": "opt/modeling_opt.py:160"}}
ELSEWHERE = {"candidate": {"function": "sdpa", "source": "sdpa_attention.py:1"}}
SB906 = {"code": "SB906", "evidence": []}
SCALES = {"code": "SB999", "evidence": ["a scale of 2"]}


def marks(*arguments, **changes):
    outcome = judge(case(**changes), report(*arguments[0], **arguments[1]))
    return "".join(
        key[0] for key in ("found", "named", "listed", "silent") if getattr(outcome, key)
    )


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([cell("reference"), cell("diverged", **DIFFERS, cause=CAUSE)], "fn"),
        ([cell("reference"), cell("diverged", **DIFFERS, cause=ELSEWHERE)], "f"),
        ([cell("reference", findings=[SB906]), cell()], "fn"),
        ([cell("reference", findings=[SB906]), cell(findings=[SB906])], "s"),
        ([cell("reference"), cell(findings=[SCALES])], "f"),
        ([cell("reference", findings=[SCALES]), cell(findings=[SCALES])], "s"),
        ([cell("reference"), cell(changes=["the scale of a head differs"])], "f"),
        ([cell("reference"), cell()], "s"),
        ([cell("reference"), cell("rounding", **DIFFERS)], "s"),
        ([cell("reference"), cell("diverged", signals=[{"signal": "buffers", "outcome": "differs"}])], "s"),
        ([], "s"),
    ],
)  # fmt: skip
def test_what_a_report_shows_of_a_case(cells, expected):
    assert marks(cells, {}) == expected


def test_an_exception_finds_it_and_its_traceback_names_it():
    frames = [{"function": "OPTAttention.forward", "file": "opt/modeling_opt.py", "line": 3}]
    failure = {"type": "KeyError", "message": "'window'", "phase": "load", "frames": frames}
    cells = [cell("failed", failure=failure), cell()]
    assert marks(cells, {}, failure="'window'") == "fn"
    assert marks(cells, {}, failure="'rope'") == "s"


def test_what_the_table_of_processors_shows_counts():
    made = report(cell("reference"), cell())
    part = {
        "differences": [{"case": "gray", "reference": "raises KeyError: scaling", "step": None}]
    }
    made["rows"][0]["answers"] = {"processors": {"compared": {"5.3.0": {"parts": [part]}}}}
    assert judge(case(), made).found
    assert not judge(case(says=("mean",)), made).found


def test_what_the_table_of_texts_shows_counts():
    made = report(cell("reference"), cell())
    first = {"case": "dicts", "reference": "raises KeyError: scaling", "candidate": "[1, 1]"}
    operations = [{"operation": "pad", "first": first}, {"operation": "batch"}]
    made["rows"][0]["answers"] = {"texts": {"stacks": {"5.3.0": {"operations": operations}}}}
    assert judge(case(), made).found
    assert judge(case(says=("^pad",)), made).found
    assert not judge(case(says=("batch",)), made).found


def test_a_finding_of_a_stack_counts():
    assert (
        marks([cell("reference"), cell()], {"stacks": [{"id": "5.2.0", "findings": [SB906]}]})
        == "fn"
    )


def test_a_finding_of_both_stacks_shows_no_difference():
    stacks = [{"id": id, "findings": [SB906]} for id in ("5.2.0", "5.3.0")]
    assert marks([cell("reference"), cell()], {"stacks": stacks}) == "s"


def test_rows_of_other_dtypes_are_compared_each_in_itself():
    rows = [
        report(cell("reference", findings=[SB906]), cell())["rows"][0],
        report(cell("reference"), cell())["rows"][0],
    ]
    assert judge(case(), {"rows": rows, "stacks": []}).found


def test_a_definition_is_listed_if_the_page_shows_it():
    others = [f"f{number}" for number in range(SHOWN)]
    cells = [cell("reference"), cell()]
    expected = {"source": ("OPTAttention",)}
    assert marks(cells, {"steps": [step(*others[1:], "OPTAttention")]}, **expected) == "l"
    assert marks(cells, {"steps": [step(*others, "OPTAttention")]}, **expected) == "s"


def result(sha="aaaaaaaaaa", **shown):
    figures = dict.fromkeys(page.KEYS, False) | {"shown": "identical", "because": ""} | shown
    return {
        "sha": sha,
        "draw": 2,
        "symptom": "scaled twice",
        "before": "5.2.0",
        "after": "5.3.0",
        "levels": {"default": figures},
    }


def results(*cases):
    return {"date": "2026-11-25", "machine": {"cores": 2}, "cases": [*cases]}


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    # as scipy.stats.binomtest has it, with the method "wilson"
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (8, 15, 0.3012, 0.7519)],
)
def test_the_interval_is_wilsons(hits, n, low, high):
    assert page.interval(hits, n) == pytest.approx((low, high), abs=5e-5)


def test_the_page_has_the_figures_the_cases_the_misses_and_the_skipped_commits(monkeypatch):
    order = [{"status": "proven"}, {"status": "skipped", "reason": "needs GPU: flash"}] * 2
    monkeypatch.setattr(page, "decided", lambda _: order)
    hit = result(found=True, named=True, because="load_keys | <pad>")
    missed = result("bbbbbbbbbb", silent=True, why="beams never run")
    text = "\n\n".join(page.section(results(hit, missed)))
    assert "1 (9% to 91%)" in text
    assert "load_keys \\| &lt;pad>" in text
    assert f"- [bbbbbbbbbb]({page.COMMITS}/bbbbbbbbbb) (silent): beams never run" in text
    assert "Draw 2: 2 of the first 4 commits are skipped: needs GPU (2)." in text
    assert "Level all" not in text


def test_the_sentence_has_the_figures_of_first_runs_at_the_default_level(monkeypatch):
    monkeypatch.setattr(page, "_RAN_AGAIN", {1: 1})
    hit = result(found=True, named=True)
    only_all = result("bbbbbbbbbb") | {"levels": {"all": hit["levels"]["default"]}}
    opened = result("dddddddddd", found=True) | {"draw": hit["draw"] - 1}
    text = page.sentence(results(hit, only_all, result("cccccccccc", silent=True), opened))
    assert text.startswith(
        "Of 2 fixes drawn at random from its history, on which no check was built"
    )
    assert "found 1 (95 % interval 9% to 91%) and named the cause of 1." in text
    assert "Of 0 more it listed the\nchanged code as not run; on 1 it was silent." in text
    assert page.sentence(results(only_all)) == ""


def test_cases_of_a_draw_that_were_built_on_are_not_counted_with_its_rest(monkeypatch):
    shas = ("aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc")
    order = [{"status": "proven", "sha": sha} for sha in shas]
    monkeypatch.setattr(page, "decided", lambda _: order)
    monkeypatch.setattr(page, "_OPENED", {2: (1,)})
    monkeypatch.setattr(page, "_RAN_AGAIN", {2: 1})
    opened = [result(shas[0], found=True), result(shas[1], silent=True)]
    text = page.sentence(results(*opened))
    assert text.startswith("Of 1 fixes drawn")
    assert "found 0 " in text
    assert [row[:5] for row in page._figures(results(*opened))] == [
        ["default", "2, the first 1", 1, 1, "1 (21% to 100%)"],
        ["default", "2, the rest", 2, 1, "0 (0% to 79%)"],
    ]
    # only what was opened ran: it is the one part, and it ran again
    assert page.sentence(results(opened[0])) == ""


def test_each_opening_of_a_draw_is_a_part_of_its_own(monkeypatch):
    shas = ("aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc")
    order = [{"status": "proven", "sha": sha} for sha in shas]
    monkeypatch.setattr(page, "decided", lambda _: order)
    monkeypatch.setattr(page, "_OPENED", {2: (1, 2)})
    cases = [result(shas[0]), result(shas[1], found=True), result(shas[2], silent=True)]
    assert [row[1:5] for row in page._figures(results(*cases))] == [
        ["2, the first 1", 1, 1, "0 (0% to 79%)"],
        ["2, the next 1", 1, 1, "1 (21% to 100%)"],
        ["2, the rest", 1, 1, "0 (0% to 79%)"],
    ]
    monkeypatch.setattr(page, "_RAN_AGAIN", {2: 1})
    assert page.sentence(results(*cases)).startswith("Of 2 fixes drawn")


def test_a_run_of_one_level_keeps_what_other_levels_and_cases_gave(monkeypatch):
    monkeypatch.setattr(run, "proven", lambda: [(2, {"sha": sha}) for sha in ("a", "b")])
    earlier = {"cases": [{"sha": "b", "levels": {"all": 1}}]}
    first = run.merged(earlier, {"sha": "a", "levels": {"default": 2}})
    assert first == [{"sha": "a", "levels": {"default": 2}}, earlier["cases"][0]]
    second = run.merged({"cases": first}, {"sha": "b", "levels": {"default": 3}})
    assert second[1] == {"sha": "b", "levels": {"all": 1, "default": 3}}


def test_the_results_and_what_was_reviewed_are_of_proven_cases():
    measured = page.read()
    if measured is None:
        pytest.skip("nothing is measured yet")
    proven = [entry["sha"] for _, entry in run.proven()]
    shas = [entry["sha"] for entry in measured["cases"]]
    assert shas == [sha for sha in proven if sha in shas]
    assert {*run.reviewed()} <= {*proven}


def test_samebits_takes_the_matrix_of_the_level_all_and_asks_every_question(tmp_path):
    case = proof.read(min(proof.CASES.glob("*.py")))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    for options in ((), ("--trust-remote-code",)):
        path = tmp_path / "matrix.yaml"
        matrix = run.matrix_of_all(tmp_path, case.model_copy(update={"options": options}))
        path.write_text(yaml.safe_dump(matrix), "utf-8")
        (model,) = load(path).models
        assert model.trust_remote_code is bool(options)
        assert model.questions == {key.name: True for key in switches().values()}


def test_a_folder_that_is_refused_shows_nothing_and_any_other_run_without_a_report_ends_the_measurement(
    tmp_path,
):
    refused = run._read(tmp_path / "report.json", 2)
    case = proof.read(min(proof.CASES.glob("*.py")))
    assert judge(case, refused).shown == "no cell ran"
    assert judge(case, refused).silent
    with pytest.raises(SystemExit, match="samebits ended with 1 and wrote no"):
        run._read(tmp_path / "report.json", 1)
