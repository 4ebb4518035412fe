"""A question is two folders and a line: everything else the core does with it by itself."""

import json
import os
import re
import shutil
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.real.conftest import OTHERS, run_samebits, warm_script

ROOT = Path(__file__).parents[2]
TOY = ROOT / "tests" / "support" / "toy_question"
LIST = "QUESTIONS: tuple[Question, ...] = ("
MODELS = ("planted", "sound")
OLD_AGE = 8 * 86_400
TINY = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Copy the project, and add the two folders, the page of the rule and the line in the list."""
    made = tmp_path_factory.mktemp("toy")
    for name in ("samebits", "probes", "docs/findings", "tests/support"):
        shutil.copytree(
            ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True
        )
    shutil.copytree(
        TOY / "host", made / "samebits/questions/toy", ignore=shutil.ignore_patterns("*.md")
    )
    shutil.copytree(TOY / "probe", made / "probes/samebits_probe/questions/toy")
    shutil.copy(TOY / "host" / "SB999.md", made / "docs/findings")
    listed = made / "samebits/questions/__init__.py"
    text = listed.read_text()
    assert text.count(LIST) == 1
    text = text.replace(LIST, f"from samebits.questions import toy\n\n{LIST}toy.QUESTION, ")
    listed.write_text(text)
    return made


@pytest.fixture(scope="module")
def samebits(project, stacks, tmp_path_factory):
    """Run the command line of the copy in a work folder."""
    script = warm_script(tmp_path_factory, "toy-warm", project)

    def run(folder, *words, code=0):
        done = run_samebits(script, folder, *words, path=(project, project / "probes"))
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def folder_with_matrix(path):
    path.mkdir()
    recipe = {"architecture": "llama", "config": TINY}
    entry = {"build": recipe, "prompts": {"short": {"length": 5}}}
    matrix = {
        "environments": ["4.48", "5.x"],
        "defaults": {"greedy": 2, **dict.fromkeys(OTHERS, False), "toy": True},
        "models": dict.fromkeys(MODELS, entry),
    }
    (path / "matrix.yaml").write_text(json.dumps(matrix))  # JSON is YAML
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return f"file://{tmp_path_factory.mktemp('store')}"


@pytest.fixture(scope="module")
def first(tmp_path_factory, samebits, store):
    folder = folder_with_matrix(tmp_path_factory.mktemp("works") / "first")
    formats = "md,html,junit,github,json"
    samebits(folder, "matrix", "--reports", "report", "--format", formats, "--store", store)
    return folder


def report_of(folder, name="report"):
    return json.loads((folder / name / "report.json").read_text())


def answers(report):
    return {row["model"]: row["answers"]["toy"] for row in report["rows"]}


def jobs_of(report):
    return {spent["kind"]: spent["jobs"] for spent in report.get("spent", ())}


def test_it_is_asked_in_cells_and_by_jobs_of_its_own(first):
    report = report_of(first)
    assert jobs_of(report)["toy.add"] == 4
    for answer in answers(report).values():
        assert answer["phase"].keys() == answer["jobs"].keys() == {"4.48", "5.x"}


def test_a_difference_is_judged_in_float64(first):
    found = {model: answer["standings"] for model, answer in answers(report_of(first)).items()}
    assert found == {"planted": {"5.x": "diverged"}, "sound": {"5.x": "rounding"}}


def test_its_rule_names_what_diverges_and_leaves_the_sound_twin_alone(first):
    named = {
        row["model"]: {f["code"] for cell in row["cells"] for f in cell.get("findings", ())}
        for row in report_of(first)["rows"]
    }
    assert "SB999" in named["planted"]
    assert "SB999" not in named["sound"]


def test_it_makes_no_verdict(first):
    report = report_of(first)
    assert report["exit_code"] == 0
    assert all(cell["verdict"] != "diverged" for row in report["rows"] for cell in row["cells"])


def test_every_format_shows_it(first):
    folder = first / "report"
    assert "Toy sums diverge on 5.x" in (folder / "report.md").read_text()
    assert "## Toy sums" in (folder / "findings.md").read_text()
    assert "## Toy sums" in (folder / "models" / "planted.md").read_text()
    (html,) = (path.read_text() for path in folder.rglob("planted.html"))
    assert re.search(r"<h2>Toy sums</h2>.*<table.*diverged", html, re.DOTALL)
    said = "".join(ET.parse(folder / "junit.xml").getroot().itertext())
    assert "Toy sums diverge on 5.x" in said
    summaries = [path.read_text() for path in folder.rglob("*.md") if "summary" in path.name]
    assert any("Toy sums diverge on 5.x" in text for text in summaries)


def test_what_only_this_machine_has_is_left_out_of_every_file(first):
    home = str(Path.home())
    for path in (first / "report").rglob("*"):
        if path.is_file():
            assert f"{home}/sums" not in path.read_text("utf-8", "replace"), path
    notes = [
        job["note"]
        for answer in answers(report_of(first)).values()
        for job in answer["jobs"].values()
    ]
    assert set(notes) != {""}


def test_it_has_a_price(first):
    text = (first / ".samebits" / "costs.json").read_text()
    assert "toy.add" in text


def test_a_second_run_finds_it_in_the_cache(first, samebits):
    samebits(first, "matrix", "--reports", "again")
    report = report_of(first, "again")
    assert "toy.add" not in jobs_of(report)
    assert answers(report) == answers(report_of(first))


def test_another_machine_finds_it_in_the_store(first, samebits, store, tmp_path):
    folder = folder_with_matrix(tmp_path / "second")
    samebits(folder, "matrix", "--reports", "report", "--store", store)
    report = report_of(folder)
    # the planted sum is none of the store's: its note holds a path of the machine
    assert jobs_of(report)["toy.add"] == 2
    assert answers(report) == answers(report_of(first))


def test_shards_are_merged_with_it(first, samebits, tmp_path):
    folder = folder_with_matrix(tmp_path / "sharded")
    for shard in ("1/2", "2/2"):
        samebits(folder, "matrix", "--shard", shard)
    samebits(
        folder,
        "merge",
        "--reports",
        "merged",
        *map(str, sorted((folder / "shards").glob("*-of-2"))),
    )
    report = report_of(folder, "merged")
    assert answers(report) == answers(report_of(first))


def test_its_switch_leaves_it_out_and_what_no_run_uses_is_pruned(samebits, tmp_path):
    folder = folder_with_matrix(tmp_path / "old")
    samebits(folder, "matrix", "--reports", "report")
    kept = list((folder / ".samebits" / "toys").rglob("*.json"))
    assert len(kept) == 4
    then = time.time() - OLD_AGE
    for path in [*(folder / ".samebits" / "receipts").rglob("*"), *kept]:
        os.utime(path, (then, then))
    text = (folder / "matrix.yaml").read_text().replace('"toy": true', '"toy": false')
    (folder / "matrix.yaml").write_text(text)
    samebits(folder, "matrix", "--reports", "report")
    assert not list((folder / ".samebits" / "toys").rglob("*.json"))
    assert all("toy" not in row.get("answers", {}) for row in report_of(folder)["rows"])
