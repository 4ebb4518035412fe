"""Random cases: the rule that draws them, what counts as found, and the page."""

from datetime import UTC, datetime

import pytest
import yaml

from bench.fixes import draw, page, proof
from bench.fixes.judge import judge

SKIPS = (
    "needs GPU",
    "needs several devices",
    "needs network or hub weights",
    "needs custom code",
    "package missing",
    "no observable output on CPU",
    "not in both releases",
    "refactor without effect",
    "not transformers use",
    "not proven",
)
MODELING = "src/transformers/models/bert/modeling_bert.py"
LOG = {
    "a fix of a model": ("Fix the mask of bert", (MODELING,), True),
    "a wrong loss": ("Wrong labels in the loss", ("src/transformers/loss/loss_utils.py",), True),
    "no fix": ("Add a model", (MODELING,), False),
    "a fix of docs": ("Fix docstring of bert", (MODELING,), False),
    "tests only": ("Fix bert", ("tests/models/bert/test_modeling_bert.py",), False),
    "another library": ("Fix bert", ("src/transformers/models/bert/modeling_tf_bert.py",), False),
}


@pytest.mark.parametrize("name", LOG)
def test_the_rule_takes_fixes_of_what_a_run_can_see(name):
    subject, files, taken = LOG[name]
    text = "\n".join((f"{'a' * 40}\x1f2025-06-25T10:00:00+02:00\x1f{subject}", "", *files))
    assert (draw._commit(text) is not None) is taken


def test_a_commit_lies_between_two_minor_releases():
    times = {"4.51.3": 1, "4.52.0": 2, "4.52.4": 4, "4.53.0": 6}
    known = {name: datetime(2025, 1, day, tzinfo=UTC) for name, day in times.items()}
    assert draw.around(datetime(2025, 1, 3, tzinfo=UTC), known) == ("4.52.4", "4.53.0")
    assert draw.around(datetime(2025, 1, 9, tzinfo=UTC), known) == ("", "")


DRAWS = sorted(draw.DRAWS.glob("*.yaml"))


@pytest.mark.parametrize("path", DRAWS, ids=lambda path: path.stem)
def test_a_draw_has_no_gap_and_each_commit_left_out_has_a_reason(path):
    order = draw.drawn(path)
    decided = [commit.get("status") for commit in order]
    n = sum(status is not None for status in decided)
    assert n >= 10
    assert None not in decided[:n]
    for commit in order[:n]:
        if commit["status"] == "skipped":
            assert commit["reason"].startswith(SKIPS), commit
        else:
            assert (proof.CASES / f"{commit['sha']}.py").is_file()


def test_each_script_belongs_to_a_proven_commit_and_says_what_counts():
    commits = (commit for path in DRAWS for commit in draw.drawn(path))
    proven = {commit["sha"] for commit in commits if commit.get("status") == "proven"}
    scripts = {path.stem: proof.read(path) for path in proof.CASES.glob("*.py")}
    assert set(scripts) == proven
    for case in scripts.values():
        assert case.made
        assert case.before != case.after
        assert case.signals or case.findings or case.failure or case.says


CASE = proof.Case(
    before="4.57.6",
    after="5.0.0",
    made="5.0.0",
    symptom="x",
    area="computation",
    signals=("logits",),
    findings=("SB301",),
    failure="TypeError",
    says=(r"\bpost_processor\b",),
    source=("BertAttention", "modeling_bert.py"),
)


def report(**fields):
    reference = {"judged": "reference", "verdict": "reference", "cell": {"stack": "4.57.6"}}
    cell = {"judged": "identical", "verdict": "identical", "cell": {"stack": "5.0.0"}} | fields
    row = {"cells": [reference, cell], "answers": fields.pop("answers", {})}
    return {"rows": [row], "stacks": []}


def steps(name, place=0):
    """Return the answer about changed code with a definition at a place of its ranking."""
    others = [{"name": f"other{i}", "file": "x.py"} for i in range(place)]
    entry = {"name": name, "file": "models/bert/modeling_bert.py"}
    return {"changes": {"steps": [{"first": [*others, entry]}]}}


def test_a_finding_finds_and_names():
    found = {"code": "SB301", "where": "w", "evidence": ["never written"]}
    outcome = judge(CASE, report(findings=[found]))
    assert (outcome.found, outcome.named, outcome.because) == (True, True, "SB301")
    other = judge(CASE, report(findings=[found | {"code": "SB999"}]))
    assert (other.found, other.silent) == (False, True)


def test_a_signal_counts_only_if_its_verdict_fails():
    signals = [{"signal": "logits", "outcome": "differs"}]
    assert judge(CASE, report(signals=signals, judged="diverged", verdict="diverged")).found
    assert judge(CASE, report(signals=signals, judged="rounding", verdict="rounding")).silent


def test_a_text_finds_what_the_case_says():
    said = {"code": "SB806", "where": "x", "evidence": ["post_processor: differs"]}
    assert judge(CASE, report(findings=[said])).found
    assert judge(CASE, report(findings=[said | {"evidence": ["post processors"]}])).silent


def test_what_did_not_run_is_listed_only_among_the_first_ten():
    for place, listed in ((0, True), (9, True), (10, False)):
        outcome = judge(CASE, report(answers=steps("BertAttention.forward", place)))
        assert (outcome.listed, outcome.silent) == (listed, not listed)


def test_a_run_without_a_cell_is_silent():
    assert judge(CASE, {"rows": [], "stacks": []}).silent


def test_the_interval_is_that_of_wilson():
    low, high = page.interval(8, 16)
    assert (round(low, 2), round(high, 2)) == (0.28, 0.72)
    assert page.interval(0, 15)[0] == 0.0
    assert page.interval(15, 15)[1] == 1.0


def result(sha, *, found=False, listed=False):
    shown = {"found": found, "named": found, "listed": listed, "silent": not (found or listed)}
    levels = {"default": shown | {"because": "logits" if found else "", "shown": "identical"}}
    case = {"draw": 2, "symptom": "a | b", "before": "5.0.0", "after": "5.1.0"}
    return {"sha": sha, "levels": levels} | case


RESULTS = {
    "date": "2026-11-25",
    "machine": {"cores": 2},
    "levels": ["default"],
    "cases": [result("a" * 10, found=True), result("b" * 10, listed=True), result("c" * 10)],
}


def test_the_page_has_the_figures_with_their_intervals():
    text = "\n".join(page.section(RESULTS))
    assert "| default | 3 " in " ".join(text.split())
    assert text.count("1 (6% to 79%)") == 4
    assert "commits were skipped" in text
    assert page.sentence(RESULTS) == (
        "Of 3 fix commits that were drawn at random, a check without a hint finds 1\n"
        "(95 % interval 6% to 79%) and says nothing of 1."
    )


def test_draws_are_plain_records():
    for path in DRAWS:
        record = yaml.safe_load(path.read_text("utf-8"))
        assert {"seed", "clone", "population", "order"} <= record.keys()
        assert len(record["order"]) == draw.LENGTH
