"""samebits report: formats from report.json, without a run and without a change of a fact."""

import json
import lzma

import pytest

from samebits import cli
from samebits.records.report import SCHEMA_VERSION
from samebits.reports import again, packed, write
from samebits.reports.again import ReportFileError
from tests.support.sample_report import NEVER_WRITTEN, STACKS, sample_report
from tests.support.zoo import PATH

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


def test_compressed_data_has_the_same_facts_and_takes_the_place_of_the_plain_file(report):
    plain, before = json.loads(report.read_bytes()), files(report.parent)
    assert main(report, "--compress") == 0
    after = files(report.parent)
    assert after.keys() - before.keys() == {"report.json.xz"}
    assert before.keys() - after.keys() == {"report.json"}
    assert json.loads(lzma.decompress(after["report.json.xz"])) == plain
    assert b"(report.json.xz)" in after["report.md"]


def test_a_compressed_report_is_read_under_both_names_and_stays_compressed(report):
    assert main(report, "--compress") == 0
    before = files(report.parent)
    for name in ("report.json", "report.json.xz"):
        assert main(report.with_name(name)) == 0
        assert files(report.parent) == before


def test_a_new_run_leaves_one_of_both_files(report):
    assert main(report, "--compress") == 0
    write.write(sample_report(), report.parent, LOCKS)
    assert report.exists()
    assert not report.with_name("report.json.xz").exists()


@pytest.mark.parametrize("cut", [0, 1_000])
def test_a_damaged_compressed_report_is_refused(report, capsys, cut):
    assert main(report, "--compress") == 0
    packed = report.with_name("report.json.xz")
    packed.write_bytes(packed.read_bytes()[:cut])
    assert main(packed) == 2
    assert "xz" in capsys.readouterr().err


def older(path, version=again.OLDEST_VERSION):
    document = json.loads(path.read_bytes())
    del document["hash_algorithm"]
    path.write_text(json.dumps(document | {"schema_version": version}))


def test_a_report_of_an_earlier_version_is_read_and_keeps_its_version(report):
    older(report)
    before = facts(report)
    assert main(report, "--format", "junit") == 0
    assert facts(report) == before
    assert before["schema_version"] == 16
    assert "hash_algorithm" not in before


def test_verdicts_of_an_earlier_version_get_the_findings_that_explain_them(tmp_path):
    """What does not explain a verdict is not blamed."""
    document = json.loads(packed.content(PATH))
    for cell in (cell for row in document["rows"] for cell in row["cells"]):
        cell.pop("explained_by", None)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document | {"schema_version": SCHEMA_VERSION - 1}))
    zoo = again.read(path).report
    cells = {(c.cell.model, c.cell.stack): c for c in zoo.cells if "float32" in str(c.cell.variant)}
    found = {
        key: {(e.code, e.stack) for e in cells[key].explained_by}
        for key in (("gemma2", "5.x"), ("gemma2", "4.57"), ("roberta", "5.x"), ("bert", "5.x"))
    }
    assert found["gemma2", "5.x"] == {
        ("SB605", "4.48")
    }  # what comes first: SB704 is about decoding
    assert found["gemma2", "4.57"] == {("SB704", "4.48")}  # and not SB846, which is about training
    assert found["roberta", "5.x"] == {("SB308", "4.48")}
    assert found["bert", "5.x"] == set()


def test_findings_have_the_texts_of_now_and_a_code_that_is_gone_keeps_its_own(report):
    document = json.loads(report.read_bytes())
    text = NEVER_WRITTEN.model_dump(mode="json")
    gone = text | {"code": "SB000", "name": "a defect that no release has"}
    old = text | {"code": "SB843", "name": "micro-batches teach something else"}
    report.write_text(json.dumps(document | {"rules": [gone, old]}), "utf-8")
    names = [text.name for text in again.read(report).report.rules]
    assert names == [gone["name"], "gradient accumulation is not equal to one large batch"]


@pytest.mark.parametrize("version", [15, 99, "16", None])
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
    assert summary.read_text("utf-8").startswith("# samebits: matrix.yaml: new: 4 models fail, ")
    assert "::error" in capsys.readouterr().out
