"""Defects beside the verdict: those of a candidate come first, and report.md has their remedies."""

import re
from html import unescape
from pathlib import Path

import pytest

from samebits.diagnose.exit_code import UNASKED
from samebits.findings.release import of_stacks
from samebits.pipeline.reporting import strictly
from samebits.records.capture import Failure
from samebits.records.finding import Explanation, Finding, StackFinding
from samebits.records.ids import Variant, Verdict
from samebits.reports.answer import result
from samebits.reports.answer.remedy import nothing
from samebits.reports.beside import defects
from samebits.reports.document import render
from samebits.reports.html.addresses import HOME
from samebits.reports.html.site import folder
from samebits.reports.sections.in_brief import beside_the_verdict
from samebits.terminal.screen import screen
from tests.support.sample_report import NEVER_WRITTEN, cell, renamed, row, sample_report

VARIANT = Variant(dtype="float32", attention="default")
STACKS = ("4.48", "4.57", "5.23")


def rule(code, kind):
    return NEVER_WRITTEN.model_copy(
        update={"code": code, "kind": kind, "name": f"name of {code}", "remedy": f"Mend {code}."}
    )


RULES = tuple(
    rule(code, kind)
    for code, kind in (("SB1", "crash"), ("SB2", "silent"), ("SB3", "api"), ("SB4", "rounding"))
)


def shown(*, explained=(), **codes):
    """Return a report in which each stack has findings, ``CODE`` or ``CODE!STACK`` where a stack raises."""
    cells = {}
    for stack in STACKS:
        verdict = Verdict.REFERENCE if stack == STACKS[0] else Verdict.IDENTICAL
        found = []
        for text in codes.get("s" + stack.replace(".", "_"), "").split():
            text, _, where = text.partition("@")  # noqa: PLW2901  a place of its own
            code, _, raises = text.partition("!")
            before = raises == "before"
            found.append(
                Finding(
                    code=code,
                    where=where or "place",
                    evidence=(),
                    raises="" if before else raises,
                    of_reference=before,
                )
            )
        reasons = tuple(Explanation(code=c, where="place", stack=stack) for c in explained)
        cells[stack] = cell("tiny", VARIANT, stack, verdict, findings=tuple(found)).model_copy(
            update={"explained_by": reasons}
        )
    sample = sample_report()
    stacks = tuple(stack for stack in sample.stacks if stack.id in STACKS)
    update = {"rows": (row("tiny", VARIANT, cells),), "rules": RULES, "stacks": stacks}
    return sample.model_copy(update=update | {"exit_code": 0, "reasons": ()})


@pytest.mark.parametrize(
    ("codes", "since"),
    [
        ({"s5_23": "SB2"}, "changed"),
        ({"s4_48": "SB2", "s5_23": "SB2"}, "changed"),
        ({"s4_48": "SB2"}, "repaired"),
        ({"s5_23": "SB2!4.48"}, "repaired"),
        ({"s5_23": "SB2!before"}, "repaired"),
        ({"s5_23": "SB2!5.23"}, "changed"),
        ({"s4_48": "SB2", "s4_57": "SB2", "s5_23": "SB2"}, "alike"),
    ],
)
def test_whose_defect_it_is(codes, since):
    (found,) = defects(shown(**codes))
    assert found.since == since


def test_what_explains_a_verdict_is_not_beside_it():
    assert not defects(shown(s5_23="SB2", explained=("SB2",)))


def test_what_explains_the_verdict_of_one_model_stays_beside_that_of_another():
    explained, other = shown(s5_23="SB2", explained=("SB2",)), shown(s5_23="SB2")
    rows = (*explained.rows, renamed(other.rows[0], model="other"))
    (found,) = defects(explained.model_copy(update={"rows": rows}))
    assert (found.text.code, found.models) == ("SB2", ("other",))


def test_those_of_a_candidate_come_first_then_the_worst_kind():
    found = defects(shown(s4_48="SB1", s5_23="SB3 SB2 SB4"))
    assert [d.text.code for d in found] == ["SB2", "SB3", "SB4", "SB1"]


def test_what_a_saved_copy_lacks_stands_behind_what_a_load_shows():
    """Other tokens of a text concern every user, a key of a copy only who saves one."""
    report = shown(s5_23="SB10 SB11")
    both = tuple(RULES[1].model_copy(update={"code": code}) for code in ("SB10", "SB11"))
    report = report.model_copy(update={"rules": both})
    assert [d.text.code for d in defects(report)] == ["SB10", "SB11"]
    first = report.rows[0]
    saves = {"SB10": "5.23"}
    cells = tuple(
        each.model_copy(
            update={
                "findings": tuple(
                    f.model_copy(update={"saver": saves.get(f.code, "")}) for f in each.findings
                )
            }
        )
        for each in first.cells
    )
    rows = (first.model_copy(update={"cells": cells}),)
    listed = defects(report.model_copy(update={"rows": rows}))
    assert [d.text.code for d in listed] == ["SB11", "SB10"]


def test_the_report_has_their_remedies_and_its_title_the_silent_ones():
    report = shown(s4_48="SB1", s5_23="SB3 SB2 SB4")
    text = render(report)["report.md"]
    part = text.partition("## Beside the verdict")[2].partition("##")[0]
    assert "Mend SB2." in part
    assert "Mend SB3." in part
    assert "SB4" not in part  # nothing is to be done about what rounds
    assert "In the reference alone: SB1" in part
    assert result(report).endswith("silent findings beside the verdict (SB2)")


def test_a_headline_names_a_few_codes_and_counts_the_others():
    rules = [RULES[1].model_copy(update={"code": f"SB{n}"}) for n in range(10, 20)]
    report = shown(s5_23=" ".join(rule.code for rule in rules)).model_copy(
        update={"rules": tuple(rules)}
    )
    named = "SB10, SB11, SB12, SB13, SB14 and 5 more"
    assert result(report).endswith(f"silent findings beside the verdict ({named})")


def test_the_reference_has_a_defect_alone_only_if_the_candidates_run():
    report = shown(s4_48="SB1")
    assert any("in 4.48 alone: SB1" in line for line in screen(report, [Path("report.md")], {}))
    first = report.rows[0]
    failure = Failure(phase="load", type="ImportError", message="gone", traceback="")
    cells = (*first.cells[:-1], first.cells[-1].model_copy(update={"failures": (failure,)}))
    rows = (first.model_copy(update={"cells": cells}), *report.rows[1:])
    report = report.model_copy(update={"rows": rows})
    assert any("in 4.48: SB1" in line for line in screen(report, [Path("report.md")], {}))
    assert "In the reference: SB1" in render(report)["report.md"]


@pytest.mark.parametrize("n_models", [1, 2])
def test_the_first_page_of_report_html_has_the_same_section(n_models):
    report = shown(s4_48="SB1", s5_23="SB3 SB2 SB4")
    rows = (*report.rows, renamed(report.rows[0], model="other"))[:n_models]
    report = report.model_copy(update={"rows": rows})
    page = folder(report, ())[HOME]
    part = page.partition("<h2>Beside the verdict</h2>")[2].partition("</section>")[0]
    assert page.count("Beside the verdict</h2>") == 1
    text = " ".join(unescape(re.sub("<[^>]*>", " ", part)).split())
    models = " (place; in 5.23):" if n_models == 1 else " ( tiny , other ):"
    assert f"SB2 name of SB2{models} Mend SB2." in text, text
    assert text.startswith("Known defects in other uses, such as training")
    assert "SB4" not in text
    assert "In the reference alone: SB1" in text
    assert ('href="html/models/tiny.html"' in part) is (n_models > 1)


def test_silent_defects_of_a_release_that_the_model_shows_are_named():
    """SB855: Trainer of a release builds other batches, and the numbers of this model follow."""
    report = shown()
    stacks = [
        stack.model_copy(
            update={
                "findings": tuple(
                    StackFinding(code=code, where="x", evidence=(), models=("tiny",))
                    for code in codes
                )
            }
        )
        for stack, codes in zip(report.stacks, ((), ("SB2",), ("SB2", "SB3")), strict=True)
    ]
    rules = tuple(rule.model_copy(update={"scope": "release"}) for rule in RULES)
    report = report.model_copy(update={"rules": rules, "stacks": tuple(stacks)})
    shown_here = (
        "any model that is used in this way; shown with this model: SB2 name of SB2 (4.57, 5.23)."
    )
    section = f"{shown_here} Remedies: [findings](findings.md)."
    assert beside_the_verdict(report).endswith(section)


def with_uses(*raises):
    """Return a report of uses of which each raises in one release only, as the newest shows."""
    report = shown()
    uses = [
        Finding(code="SB932", where=f"generate(num_beams={n})", evidence=(), raises=stack)
        for n, stack in enumerate(raises)
    ]
    newest = next(cell for cell in report.cells if cell.cell.stack == STACKS[-1])
    listed = of_stacks([newest.model_copy(update={"findings": tuple(uses)})])
    stacks = [
        stack.model_copy(
            update={
                "findings": tuple(
                    finding.model_copy(update={"code": "SB1"})
                    for finding in listed.get(stack.id, ())
                )
            }
        )
        for stack in report.stacks
    ]
    rules = tuple(rule.model_copy(update={"scope": "release"}) for rule in RULES)
    return report.model_copy(update={"rules": rules, "stacks": tuple(stacks)})


@pytest.mark.parametrize("others", [(), ("4.48",)], ids=["alone", "beside one of the reference"])
def test_a_use_that_raises_in_a_candidate_alone_is_said_wherever_a_user_looks(others):
    report = with_uses(*others, "5.23")
    limit = "a check beside the verdict raises in 5.23 only (SB1)"
    line = f"Beside the verdict: SB1 name of SB1 (generate(num_beams={len(others)}))"
    assert result(report).endswith(limit)
    assert line in screen(report, [Path("report.md")], {})
    assert nothing(report) == "Nothing for what was compared; beside it: SB1"
    of_another = tuple(
        stack.model_copy(
            update={
                "findings": tuple(f.model_copy(update={"models": ("n",)}) for f in stack.findings)
            }
        )
        for stack in report.stacks
    )
    assert not nothing(report.model_copy(update={"stacks": of_another}))
    assert "shown with this model: SB1 name of SB1 (5.23)." in beside_the_verdict(report)
    assert strictly(report, changes=False, findings=True).reasons == (limit,)


def test_a_use_that_raises_in_the_reference_alone_is_not():
    report = with_uses("4.48")
    assert [stack.id for stack in report.stacks if stack.findings] == ["4.48"]
    assert "beside the verdict" not in result(report)
    assert not nothing(report)
    assert not [line for line in screen(report, [Path("report.md")], {}) if "Beside" in line]
    assert not beside_the_verdict(report)
    assert strictly(report, changes=False, findings=True).exit_code == 0


def test_what_raises_in_a_candidate_alone_counts_where_its_finding_names_no_stack():
    report = shown(s5_23="SB1")  # such as SB837, a processor that does not load
    assert result(report).endswith("a check beside the verdict raises in 5.23 only (SB1)")
    for alike in (shown(s4_48="SB1", s4_57="SB1", s5_23="SB1"), shown(s4_48="SB1")):
        assert "raise" not in result(alike)


def test_a_defect_that_each_side_has_elsewhere_is_shown_where_the_candidate_has_it():
    (both,) = defects(shown(s5_23="SB1!before SB1"))
    assert (both.since, both.stacks) == ("changed", ("5.23",))
    (before,) = defects(shown(s5_23="SB1!before"))
    assert (before.since, before.stacks) == ("repaired", ("4.48",))


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_uses_that_raise_that_of_the_candidate_is_named_first(order):
    """GLPN of 4.57 has no get_input_embeddings(), and Trainer of 5.24 does not train it."""
    uses = ["SB1!4.48@embeddings", "SB1!5.23@trainer"][::order]
    (both,) = defects(shown(s5_23=" ".join(uses)))
    assert (both.since, both.where) == ("changed", "trainer")
    assert set(both.stacks) == {"4.48", "5.23"}
    (alone,) = defects(shown(s5_23=uses[order < 0]))
    assert (alone.since, alone.where) == ("repaired", "embeddings")


@pytest.mark.parametrize(("mark", "stack"), [("!before", "4.48"), ("!4.48", "4.48"), ("", "5.23")])
def test_a_finding_is_listed_for_the_release_that_has_it(mark, stack):
    pages = render(shown(s5_23=f"SB2{mark}"))
    assert f"[tiny](models/tiny.md) ({stack}) |" in pages["findings.md"]
    assert f"`place`, float32-default@{stack}:" in pages["models/tiny.md"]
    page = unescape(folder(shown(s5_23=f"SB2{mark}"), ())[HOME])
    assert (f"in the reference {stack}" in page) is bool(mark)


def test_a_report_without_defects_has_no_such_section():
    report = shown()
    assert "Beside the verdict" not in render(report)["report.md"]
    assert "Beside the verdict" not in folder(report, ())[HOME]
    assert "beside the verdict" not in result(report)


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ({"s5_23": "SB2"}, UNASKED),
        ({"s5_23": "SB1!5.23"}, UNASKED),
        ({"s4_48": "SB2"}, 0),
        ({"s4_48": "SB2", "s4_57": "SB2", "s5_23": "SB2"}, 0),
        ({"s5_23": "SB4"}, 0),
        ({}, 0),
    ],
)
def test_a_strict_run_counts_what_one_release_alone_does_wrong_beside_the_verdict(codes, code):
    report = shown(**codes)
    strict = strictly(report, changes=False, findings=True)
    assert (strict.exit_code, bool(strict.reasons)) == (code, code != 0)
    assert strictly(report, changes=False, findings=False) == report
    failed = report.model_copy(update={"exit_code": 1})
    assert strictly(failed, changes=False, findings=True).exit_code == 1
