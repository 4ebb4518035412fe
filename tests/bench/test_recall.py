"""The recall benchmark: its cases, what counts as found and named, clean pairs, and the page."""

import json
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from bench.place import ROOT
from bench.recall import clean, page
from bench.recall.cases import Case, Cases, groups, read
from bench.recall.judge import judge, names, shows
from samebits.base.patches import patched_files
from samebits.matrix import load

BAD, GOOD = "4.52.3", "4.52.4"


def case(**changes):
    values = {
        "link": "https://example.org/1",
        "symptom": "scaled twice",
        "area": "caches",
        "good": [GOOD],
        "bad": [BAD],
        "expect": {"signals": ["logits"], "source": ["modeling_opt.py"]},
        "model": {"build": "opt"},
    }
    return Case.model_validate(values | changes)


def cell(verdict="identical", **more):
    return {"judged": verdict, "signals": [], "findings": [], **more}


def differs(signal="logits", verdict="diverged", **more):
    return cell(verdict, signals=[{"signal": signal, "outcome": "differs"}], **more)


def side(function="f", source="transformers/x.py:1"):
    return {"function": function, "source": source}


CAUSE = {"candidate": side("OPTAttention.forward", "transformers/models/opt/modeling_opt.py:160")}


def test_a_signal_that_differs_in_the_bad_release_alone_is_found_named_and_placed():
    outcome = judge(case(), {BAD: differs(cause=CAUSE), GOOD: cell("reference")})
    assert (outcome.found, outcome.named, outcome.released) == (True, True, True)
    assert outcome.cause == "OPTAttention.forward (transformers/models/opt/modeling_opt.py:160)"
    assert outcome.reason == ""


def test_rounding_finds_nothing():
    outcome = judge(case(), {BAD: differs(verdict="rounding"), GOOD: cell("reference")})
    assert (outcome.found, outcome.named, outcome.released) == (False, False, False)
    assert outcome.reason == "4.52.3 shows none of logits: rounding (logits)"


def test_a_change_of_rounding_is_found_by_that_verdict_alone():
    sign = {"signals": ["logits"], "source": ["modeling_opt.py"], "verdict": "rounding"}
    rounds = case(expect=sign)
    assert judge(rounds, {BAD: differs(verdict="rounding"), GOOD: cell("reference")}).found
    assert not judge(rounds, {BAD: differs(verdict="expected"), GOOD: cell("reference")}).found


def test_another_signal_than_expected_finds_nothing():
    assert not judge(case(), {BAD: differs("buffers"), GOOD: cell("reference")}).found


def test_a_cause_in_another_file_does_not_name_it():
    elsewhere = {"candidate": side("sdpa_attention_forward", "sdpa_attention.py:96")}
    outcome = judge(case(), {BAD: differs(cause=elsewhere), GOOD: cell("reference")})
    assert (outcome.found, outcome.named) == (True, False)
    assert outcome.reason == "neither a finding nor the cause names modeling_opt.py"


def test_the_changed_functions_around_a_cause_and_the_larger_one_behind_it_name_it_too():
    sign = case().expect
    diff = {"function": "OPTAttention.forward", "reference": "modeling_opt.py:1", "candidate": ""}
    assert names(sign, differs(cause={"candidate": side(), "diffs": [diff]}))
    assert names(sign, differs(cause={"candidate": side(), "beyond": CAUSE}))


def test_a_finding_finds_and_names_whatever_the_verdict():
    sign = case(expect={"findings": ["SB906"]}).expect
    found = cell(findings=[{"code": "SB906"}])
    assert shows(sign, found)
    assert names(sign, found)
    assert not shows(sign, cell(findings=[{"code": "SB907"}]))


def test_a_finding_counts_by_its_evidence_where_the_case_names_some():
    sign = case(expect={"findings": ["SB903"], "evidence": "no cache: it uses"}).expect
    assert shows(
        sign, cell(findings=[{"code": "SB903", "evidence": ["no cache: it uses the first"]}])
    )
    assert not shows(sign, cell(findings=[{"code": "SB903", "evidence": ["cache: it uses"]}]))


def test_an_exception_is_found_by_its_words_and_named_by_its_traceback():
    sign = case(expect={"failure": "pad_token_id", "source": ["modeling_opt.py"]}).expect
    frame = {"function": "__init__", "file": "models/opt/modeling_opt.py", "line": 3}
    failure = {
        "type": "AttributeError",
        "message": "no 'pad_token_id'",
        "phase": "load",
        "frames": [frame],
    }
    failed = cell("failed", failure=failure)
    assert shows(sign, failed)
    assert names(sign, failed)
    other = failed | {"failure": failure | {"message": "out of memory"}}
    assert not shows(sign, other)


def test_a_good_release_that_shows_it_is_the_wrong_release():
    asked = case(good=[GOOD, "4.53.0"])
    cells = {BAD: differs(cause=CAUSE), GOOD: cell("reference"), "4.53.0": differs(cause=CAUSE)}
    outcome = judge(asked, cells)
    assert (outcome.found, outcome.released) == (True, False)
    assert outcome.reason == "also seen in 4.53.0, where it is not"


def test_each_bad_release_must_show_it():
    asked = case(bad=[BAD, "4.52.1"])
    cells = {BAD: differs(cause=CAUSE), GOOD: cell("reference"), "4.52.1": cell()}
    outcome = judge(asked, cells)
    assert (outcome.found, outcome.released) == (True, False)
    assert outcome.reason == "not seen in 4.52.1"


def test_a_cell_that_did_not_run_is_a_reason():
    assert judge(case(), {GOOD: cell()}).reason == "no cell ran under 4.52.3"


def test_a_case_says_what_is_expected_and_what_is_to_be_named():
    with pytest.raises(ValidationError, match="says what is expected"):
        case(expect={"source": ["modeling_opt.py"]})
    with pytest.raises(ValidationError, match="says what the run is to name"):
        case(expect={"signals": ["logits"]})
    with pytest.raises(ValidationError, match="extra"):
        case(bad_release="4.52.3")


def test_cases_join_a_run_of_the_same_reference_and_leave_out_the_releases_that_they_do_not_name():
    cases = Cases(
        version=1,
        together=((BAD, GOOD, "4.53.0"),),
        cases={
            "a": case(),
            "b": case(good=[GOOD, "4.53.0"], model={"zoo": "gpt2"}),
            "c": case(good=["4.53.0"]),
        },
    )
    first, second = groups(cases.cases, cases.together)
    assert (first.reference, first.releases, [*first.cases]) == (
        GOOD,
        (BAD, GOOD, "4.53.0"),
        ["a", "b"],
    )
    assert (second.reference, [*second.cases]) == ("4.53.0", ["c"])
    assert first.matrix(Path())["exclude"] == [{"model": ["a"], "environment": ["4.53.0"]}]


@pytest.mark.parametrize(
    "group", groups(read().cases, read().together), ids=lambda group: group.name
)
def test_the_cases_of_the_file_make_matrices_that_samebits_reads(group, tmp_path):
    path = tmp_path / "matrix.yaml"
    path.write_text(yaml.safe_dump(group.matrix(tmp_path), sort_keys=False), "utf-8")
    matrix = load.load(path)
    assert {model.name for model in matrix.models} == {*group.rows().values()}
    for name, entry in group.matrix(tmp_path)["models"].items():
        patches = [tmp_path / patch for patch in entry.get("patch", ())]
        assert not patches or patched_files(tmp_path / entry["path"], patches)
        assert matrix.model(name).asks("training") is group.cases[name].trains


def test_the_file_has_at_least_forty_cases_of_nearly_all_areas_each_with_its_own_page():
    cases = read().cases
    assert len(cases) >= 40
    assert len({case.area for case in cases.values()}) >= 11
    links = [case.link for case in cases.values()]
    assert len(links) == len(set(links))


def test_nothing_in_the_product_knows_a_case():
    names_of_cases = [*read().cases]
    for path in (*(ROOT / "samebits").rglob("*.py"), *(ROOT / "probes").rglob("*.py")):
        text = path.read_text("utf-8")
        assert "bench.recall" not in text
        assert not [name for name in names_of_cases if f'"{name}"' in text]


SOURCE = '''
"""A module."""
import os
LIMIT = 3
class A:
    """A class."""
    scale = 0.5
    def f(self):
        """Return it."""
        return LIMIT
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("import os", "import sys", True),
        ('"""A class."""', '"""Another text."""', True),
        ("return LIMIT", "return 1", True),  # functions are compared by their own trees
        ("LIMIT = 3", "LIMIT = 4", False),
        ("scale = 0.5", "scale = -0.5", False),
        ("class A:", "class A(dict):", False),
    ],
)
def test_what_stands_outside_of_functions_is_compared(tmp_path, old, new, same):
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text(SOURCE)
    other.write_text(SOURCE.replace(old, new))
    assert (clean.outside(one) == clean.outside(other)) is same


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ('"""Return it."""', '"""Return that."""', ""),
        ("return LIMIT", "return -LIMIT", "A.f (models/a/modeling_a.py)"),
        ("LIMIT = 3", "LIMIT = 4", "statements outside of functions (models/a/modeling_a.py)"),
    ],
)
def test_a_pair_is_clean_if_both_releases_have_the_code_that_ran(tmp_path, old, new, difference):
    for release, text in (("one", SOURCE), ("other", SOURCE.replace(old, new))):
        path = tmp_path / release / "models/a/modeling_a.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    record = {"run": [["models/a/modeling_a.py", "A.f"]], "load": [["modeling_utils.py", "load"]]}
    roots = (tmp_path / "one", tmp_path / "other")
    assert clean.difference(record, *roots) == difference
    assert clean.difference({"failed": "ValueError: no"}, *roots) == "ValueError: no"


def test_a_clean_candidate_is_accused_by_a_verdict_or_by_a_finding_of_its_own():
    reference = cell("reference", findings=[{"code": "SB705"}])
    assert clean.accused(reference, cell(findings=[{"code": "SB705"}])) == ""
    assert clean.accused(reference, differs(verdict="rounding")) == "rounding (logits)"
    assert clean.accused(reference, cell(findings=[{"code": "SB301"}])) == "identical (SB301)"
    assert clean.accused(cell("failed"), cell("failed")) == ""


def result(**changes):
    values = {
        "name": "opt-scales-twice",
        "link": "https://example.org/1",
        "symptom": "scaled twice",
        "area": "caches",
        "held_out": True,
        "neighbours": True,
        "good": [GOOD],
        "bad": [BAD],
        "found": True,
        "named": True,
        "released": True,
        "shown": {},
        "cause": "OPTAttention.forward",
        "reason": "",
    }
    return values | changes


RESULTS = {
    "date": "2026-11-22",
    "minutes": 20,
    "machine": {"cores": 2},
    "cases": [
        result(),
        result(name="lost", named=False, found=False, released=False, reason="none seen"),
    ],
    "clean": [
        {
            "reference": GOOD,
            "candidate": BAD,
            "clean": ["llama", "gpt2"],
            "others": {"opt": "OPTAttention.forward"},
            "accusations": {"gpt2": "rounding (logits)"},
        }
    ],
}


def test_the_page_has_figures_cases_reasons_and_false_alarms():
    text = page.page(RESULTS)
    assert "| all " in text
    assert "[opt-scales-twice](https://example.org/1): scaled twice" in text
    assert "- [lost](https://example.org/1): none seen" in text
    assert "- gpt2, 4.52.4 and 4.52.3: rounding (logits)" in text


def test_the_readme_names_the_figures():
    readme = f"before\n{page.BEGIN}\nold\n{page.END}\nafter"
    text = page.with_sentence(readme, RESULTS)
    assert (
        "Of 2 published regressions of transformers, samebits finds 1 and names the cause of 1,"
        in text
    )
    assert "with 1 false alarm in 2 pairs of releases that execute the same code" in text
    assert "old" not in text
    assert page.with_sentence(text, RESULTS) == text


def test_the_pages_in_the_repository_are_those_of_the_results():
    if not page.RESULTS.exists():
        pytest.skip("no results yet: nox -s recall")
    results = json.loads(page.RESULTS.read_text("utf-8"))
    assert page.PATH.read_text("utf-8") == page.page(results)
    readme = page.README.read_text("utf-8")
    assert page.with_sentence(readme, results) == readme


NORM = '''
class Norm:
    """Normalise."""

    def forward(self, x):
        """Return x."""
        return self.weight * x
'''
TWINS = {
    "a docstring and blanks": (NORM.replace('"""Return x."""', '"""x, normalised."""'), True),
    "an operand": (NORM.replace("self.weight * x", "x * self.weight"), False),
    "a decorator": (NORM.replace("    def", "    @kernel\n    def"), False),
    "no such function": (NORM.replace("forward", "call"), False),
}


@pytest.mark.parametrize(("after", "is_same"), TWINS.values(), ids=TWINS)
def test_a_function_differs_if_what_it_computes_may_differ(tmp_path, after, is_same):
    files = tmp_path / "before.py", tmp_path / "after.py"
    for file, text in zip(files, (NORM, after), strict=True):
        file.write_text(text)
    one, other = (clean.trees(file).get("Norm.forward") for file in files)
    assert (one == other) is is_same


def test_a_file_that_a_release_lacks_has_no_function(tmp_path):
    assert clean.trees(tmp_path / "norm.py") == {}
