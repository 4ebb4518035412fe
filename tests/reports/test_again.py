"""samebits report: formats from report.json, without a run and without a change of a fact."""

import json

import pytest

from samebits import cli
from samebits.questions.trainer.records import runs_of
from samebits.questions.training.records import steps_of
from samebits.reports import again, write
from samebits.reports.again import ReportFileError
from tests.support.sample_report import STACKS, sample_report

LOCKS = {f"locks/{stack}.txt": f"lock of {stack}\n" for stack in STACKS}


@pytest.fixture
def report(tmp_path):
    """Return the path of a report.json, with its Markdown and locks beside it."""
    return write.write(sample_report(), tmp_path / "first", LOCKS).json


def main(*arguments, **environ):
    return cli.main(("report", *map(str, arguments)), {"HOME": "/h", **environ})


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def facts(path):
    document = json.loads(path.read_bytes())
    return {key: value for key, value in document.items() if key != "files"}


def test_it_writes_the_same_report_again(report, capsys):
    before = files(report.parent)
    assert main(report) == 0
    assert files(report.parent) == before
    names = [str(report.parent / name) for name in ("report.md", "report.html")]
    assert capsys.readouterr().out.splitlines()[0] == f"Report: {', '.join(names)}"


def test_formats_are_added_and_those_that_are_there_stay(report):
    before = files(report.parent)
    assert main(report, "--format", "junit,github") == 0
    after = files(report.parent)
    assert after.keys() - before.keys() == {"junit.xml", "job-summary.md"}
    assert {name: after[name] for name in before if name != "report.json"} == {
        name: text for name, text in before.items() if name != "report.json"
    }
    listed = json.loads(after["report.json"])["files"]
    assert {"junit.xml", "job-summary.md", *LOCKS} <= listed.keys()


def test_another_folder_gets_locks_and_all_facts(report, tmp_path):
    copy = tmp_path / "copy"
    assert main(report, "--reports", copy, "--format", "junit") == 0
    assert files(copy).keys() == {"report.json", "junit.xml", *LOCKS}
    assert facts(copy / "report.json") == facts(report)


def older(path, version=again.OLDEST_VERSION):
    document = json.loads(path.read_bytes())
    del document["hash_algorithm"]
    path.write_text(json.dumps(document | {"schema_version": version}))


def test_a_report_of_an_earlier_version_is_read_and_keeps_its_version(report):
    older(report)
    before = facts(report)
    assert main(report, "--format", "junit") == 0
    assert facts(report) == before
    assert before["schema_version"] == 5
    assert "hash_algorithm" not in before


def test_a_report_with_answers_is_read_as_it_stands(report):
    made = again.read(report).report
    older(report, 12)
    assert again.read(report).report.rows == made.rows


BY_TRAINER = {"relation": "Trainer: rows accumulated = one batch", "holds": True, "broken": False}
BY_MODEL = BY_TRAINER | {"relation": "rows accumulated = one batch"}
GONE = {
    "relations": {
        "relations": [BY_MODEL, BY_TRAINER],
        "inapplicable": [{"relation": "an adapter leaves other gradients", "reason": "x"}],
    },
    "comparison": {"reference": "4.48", "standing": "identical", "draws": "draw 1 moved"},
    "trainer": {
        "comparison": {
            "reference": "4.48",
            "standing": "identical",
            "changes": [{"subject": "sampler", "reference": "A", "candidate": "B"}],
        }
    },
}


def test_what_only_an_earlier_version_tried_is_left_out(report):
    document = json.loads(report.read_bytes())
    document["rows"][0]["training"] = {"5.2": GONE}
    report.write_text(json.dumps(document))
    with pytest.raises(ReportFileError):
        again.read(report)
    report.write_text(json.dumps(document | {"schema_version": 11}))
    (row, *others) = again.read(report).report.rows
    step, run = steps_of(row)["5.2"], runs_of(row)["5.2"]
    assert step.relations.inapplicable == ()
    assert step.comparison.standing == "identical"
    assert run.comparison.changes == ()
    assert not any(steps_of(other) or runs_of(other) for other in others)


def test_what_an_earlier_version_said_of_trainer_within_the_step_is_its_own_answer(report):
    document = json.loads(report.read_bytes()) | {"schema_version": 11}
    document["rows"][0]["training"] = {"4.48": {"losses": {"padded": 1.0}}, "5.2": GONE}
    report.write_text(json.dumps(document))
    (row, *_) = again.read(report).report.rows
    names = [
        [r.relation for r in of["5.2"].relations.relations] for of in (steps_of(row), runs_of(row))
    ]
    assert names == [[BY_MODEL["relation"]], [BY_TRAINER["relation"]]]
    assert (list(steps_of(row)), list(runs_of(row))) == (["4.48", "5.2"], ["5.2"])


@pytest.mark.parametrize("version", [4, 99, "6", None])
def test_another_version_is_refused_with_what_to_do(report, version, capsys):
    older(report, version)
    before = files(report.parent)
    assert main(report) == 2
    error = capsys.readouterr().err
    assert f"schema_version {version}" in error
    assert "make the report again" in error
    assert files(report.parent) == before


@pytest.mark.parametrize(
    ("text", "what"),
    [("{", "not JSON"), ("[]", "no schema_version"), ('{"a": 1}', "no schema_version")],
)
def test_what_is_no_report_is_refused(report, capsys, text, what):
    report.write_text(text)
    assert main(report) == 2
    assert what in capsys.readouterr().err


def test_a_damaged_fact_is_named(report):
    document = json.loads(report.read_bytes())
    document["rows"][0]["cells"][0]["verdict"] = "fine"
    report.write_text(json.dumps(document))
    with pytest.raises(ReportFileError, match=r"rows\.0\.cells\.0\.verdict"):
        again.read(report)


def test_a_report_that_is_not_there_is_no_traceback(tmp_path, capsys):
    assert main(tmp_path / "report.json") == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_job_summary_of_a_report_is_appended(report, tmp_path, capsys):
    summary = tmp_path / "summary.md"
    assert main(report, "--format", "github", GITHUB_STEP_SUMMARY=str(summary)) == 0
    assert summary.read_text("utf-8").startswith("# samebits: matrix.yaml does not pass")
    assert "::error" in capsys.readouterr().out
