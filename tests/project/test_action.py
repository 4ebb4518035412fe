"""action.yml and the reusable workflow: every step runs here as it is written, minus the service.

uv and gh are programs of the test; samebits is the real one, over stacks that are programs of the
test, too. The model ``odd`` computes something else under the later stack. The tests that are marked
as long are for changes of action.yml, of the workflow, and of samebits/check/bump.py.
"""

import json
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from tests.support.actions import ROOT, SELF, Run, Service, StepFailed, read
from tests.support.clones import clone, git, write
from tests.support.faulty_bench import STACKS, Bench

pytestmark = pytest.mark.processes

ACTION = read(ROOT / "action.yml")
WORKFLOWS = sorted([*(ROOT / ".github").rglob("*.yml"), *(ROOT / "examples").rglob("*.yml")])
PROGRAM = (sys.executable, str(ROOT / "tests" / "faulty" / "program.py"))
RECORDER = (sys.executable, "-c", "import sys; sys.exit(5)")
"""Takes any command and writes no report."""


@pytest.fixture
def service(tmp_path):
    """Return a project with two models and false stacks, one of which diverges."""
    return project(tmp_path, "healthy", "odd")


def project(folder, *models, stacks=STACKS):
    bench = Bench(folder / "bench", *models, stacks=stacks)
    more = {name: bench.environ[name] for name in ("TMPDIR", "HF_HOME")}
    service = Service(folder, PROGRAM, **more)
    (service.workspace / "matrix.yaml").write_bytes((bench.folder / "matrix.yaml").read_bytes())
    (service.workspace / ".samebits").mkdir()
    return service


def steps(document):
    if "runs" in document:
        return document["runs"]["steps"]
    return [step for job in document["jobs"].values() for step in job.get("steps", ())]


def test_the_action_writes_report_summary_and_annotations_and_fails(service):
    run = Run(service)
    with pytest.raises(StepFailed, match="Pass or fail: exit code 1"):
        run.action(matrix="matrix.yaml")
    folder = service.workspace / "samebits-report"
    assert (folder / "report.html").is_file()
    failures = ET.parse(folder / "junit.xml").findall(".//testcase/failure")
    assert len(failures) == 1
    assert service.summary.read_text("utf-8").startswith("# samebits: ")
    assert "odd" in service.summary.read_text("utf-8")
    assert "::error" in run.output
    names = [name for name, _ in run.used]
    assert names == [
        "astral-sh/setup-uv",
        "actions/cache/restore",
        "actions/cache/save",
        "actions/upload-artifact",
    ]
    uploaded = dict(run.used)["actions/upload-artifact"]
    assert Path(uploaded["path"]).samefile(folder)


def test_the_action_passes_where_all_bits_are_kept(tmp_path):
    outputs = Run(project(tmp_path, "healthy")).action()
    assert outputs["exit-code"] == "0"
    assert json.loads(Path(outputs["report"]).read_text("utf-8"))["exit_code"] == 0


@pytest.mark.long
def test_a_run_that_built_nothing_saves_no_second_cache(service):
    first = Run(service)
    first.action(fail="false")
    saved = dict(first.used)["actions/cache/save"]
    restored = dict(first.used)["actions/cache/restore"]
    assert saved["path"] == restored["path"]
    assert saved["key"].startswith(restored["restore-keys"])
    again = Run(service, matched_key=saved["key"])
    again.action(fail="false")
    assert "actions/cache/save" not in dict(again.used)


@pytest.mark.parametrize("place", [".", "ci"])
def test_what_is_cached_is_where_samebits_keeps_it(service, place):
    matrix = service.workspace / place / "matrix.yaml"
    matrix.parent.mkdir(exist_ok=True)
    (service.workspace / "matrix.yaml").replace(matrix)
    (matrix.parent / ".samebits").mkdir(exist_ok=True)
    run = Run(service)
    run.action(matrix=f"{place}/matrix.yaml", fail="false")
    cache, beside = dict(run.used)["actions/cache/save"]["path"].split()
    assert cache == str(service.temporary / "samebits")
    assert [*(service.workspace / beside / "captures").rglob("*.json")]
    assert (service.workspace / beside).samefile(matrix.parent / ".samebits")


def test_a_check_keeps_everything_in_the_cache_folder(tmp_path):
    """The folder is that of SAMEBITS_CACHE, which the step sets."""
    show = "import os; print(os.environ['SAMEBITS_CACHE'], os.environ['UV_PYTHON_INSTALL_DIR'])"
    service = Service(tmp_path, (sys.executable, "-c", show))
    run = Run(service)
    run.action(model="x", fail="false")
    cache = service.temporary / "samebits"
    assert run.output.split() == [str(cache), str(cache / "python")]
    assert dict(run.used)["actions/cache/restore"]["path"].split()[0] == str(cache)


def test_another_question_has_another_cache(tmp_path):
    keys, service = set(), Service(tmp_path, RECORDER)
    (service.workspace / "ci").mkdir()
    asked = (
        {},
        {"from": "4.48", "to": "5.0"},
        {"matrix": "matrix.yaml"},
        {"working-directory": "ci"},
    )
    for inputs in asked:
        run = Run(service)
        run.action(**inputs, fail="false")
        keys.add(dict(run.used)["actions/cache/restore"]["restore-keys"])
    assert len(keys) == len(asked)


@pytest.mark.long
def test_no_cache_and_no_artifact(service):
    run = Run(service)
    run.action(cache="false", artifact="", fail="false")
    assert [name for name, _ in run.used] == ["astral-sh/setup-uv"]


ASKED = {
    "check": (
        {"model": "a folder/x", "from": "4.57", "to": "5.2", "options": "--quick\n --deep"},
        ["check", "a folder/x", "--from", "4.57", "--to", "5.2", "--quick", "--deep"],
    ),
    "check of the newest": ({"model": "org/name@1"}, ["check", "org/name@1"]),
    "matrix": ({}, ["matrix", "--matrix", "matrix.yaml"]),
    "stacks": (
        {"matrix": "zoo.yaml", "from": "4.48", "to": "5.x", "options": "--models llama*"},
        ["matrix", "--matrix", "zoo.yaml", "--environments", "4.48,5.x", "--models", "llama*"],
    ),
    "no command": ({"model": "$(touch x); `touch y`"}, ["check", "$(touch x); `touch y`"]),
}


@pytest.mark.parametrize("name", ASKED)
def test_inputs_become_options(tmp_path, name):
    inputs, words = ASKED[name]
    service = Service(tmp_path, RECORDER)
    (service.workspace / "llamas").touch()
    outputs = Run(service).action(**inputs, fail="false")
    assert outputs == {"exit-code": "5", "report": ""}
    ends = ["--reports", "samebits-report", "--format", "md,html,junit,github"]
    assert service.commands == [repr([*words, *ends])]
    assert {path.name for path in service.workspace.iterdir()} == {"llamas", Path(SELF).name}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"model": "x", "matrix": "y"}, "model and matrix are both set"),
        ({"to": "5.x"}, "set both, or neither"),
    ],
)
def test_a_mistake_in_the_inputs_ends_before_anything_runs(tmp_path, inputs, message):
    service = Service(tmp_path, RECORDER)
    with pytest.raises(StepFailed, match=message) as raised:
        Run(service).action(**inputs)
    assert raised.value.code == 2
    assert service.commands == []


def test_a_mistake_in_the_matrix_fails_without_a_report(service):
    (service.workspace / "matrix.yaml").write_text("modles: {}\n")
    run = Run(service)
    with pytest.raises(StepFailed, match="exit code 2"):
        run.action()
    assert "actions/upload-artifact" not in dict(run.used)
    assert "modles" in run.output


@pytest.mark.long
def test_a_report_of_an_earlier_run_is_not_taken_for_this_one(service):
    Run(service).action(fail="false")
    (service.workspace / "matrix.yaml").write_text("modles: {}\n")
    assert Run(service).action(fail="false")["report"] == ""


def bumped(folder, *models, before="transformers==4.48.0", after="transformers==5.0.0"):
    """Return a project in git whose newest commit changes requirements.txt, and what GitHub says of it."""
    service = project(folder, *models, stacks=("before", "after"))
    matrix = service.workspace / "matrix.yaml"
    matrix.write_text(
        re.sub("^environments: .*", 'environments: ["4.48", "5.0"]', matrix.read_text())
    )
    one, two = (("pin", {"requirements.txt": f"{text}\n"}) for text in (before, after))
    return service, event_of(*clone(service.workspace, one, two))


def event_of(base, head):
    return {"pull_request": {"number": "5", "base": {"sha": base}, "head": {"sha": head}}}


@pytest.mark.long
def test_a_bump_is_compared_and_answered_in_one_comment_that_is_updated(tmp_path):
    service, event = bumped(tmp_path, "healthy", "odd")
    for n_updates in (0, 1):
        run = Run(service, event=event)
        with pytest.raises(StepFailed, match="Pass or fail: exit code 1"):
            run.action(bump="true")
        (comment,) = service.comments
        assert comment.get("updated", 0) == n_updates
    assert comment["body"].startswith(
        "<!-- samebits bump of newest/samebits/matrix.yaml -->\n## samebits: transformers 4.48.0 → 5.0.0"
    )
    assert "odd" in comment["body"]
    assert "https://github.com/someone/project/actions/runs/7" in comment["body"]
    assert "transformers 4.48.0 → 5.0.0" in service.summary.read_text("utf-8")
    asked = [command for command in service.commands if command.startswith("['matrix'")]
    assert "'samebits-bump.yaml', '--environments', 'before,after'" in asked[0]


@pytest.mark.long
def test_a_bump_that_keeps_all_bits_passes_and_says_so(tmp_path):
    service, event = bumped(tmp_path, "healthy")
    assert Run(service, event=event).action(bump="true")["exit-code"] == "0"
    assert len(service.comments) == 1
    Run(service, event=event, job="another").action(bump="true")
    assert ["updated" in comment for comment in service.comments] == [False, False]


@pytest.mark.long
def test_the_workflow_hands_a_bump_on(tmp_path):
    service, event = bumped(tmp_path, "odd", before="transformers>=4.48", after="transformers>=5")
    run = Run(service, event=event)
    with pytest.raises(StepFailed, match="Pass or fail: exit code 3"):
        run.workflow(matrix="matrix.yaml", bump=True)
    assert len(service.comments) == 1
    assert (
        next(given for name, given in run.used if name == "actions/checkout")["fetch-depth"] == "0"
    )


@pytest.mark.long
def test_where_no_version_moves_nothing_runs_and_nothing_is_said(tmp_path):
    service, event = bumped(tmp_path, "odd", after="transformers==4.48.0  # why")
    run = Run(service, event=event)
    assert run.action(bump="true") == {"exit-code": "0", "report": ""}
    assert "none of transformers, torch, tokenizers, accelerate moves" in run.output
    assert service.comments == []
    assert not any("matrix" in command.split(",")[0] for command in service.commands)
    assert "actions/cache/restore" not in dict(run.used)
    assert not service.summary.exists()


@pytest.mark.long
def test_a_comment_about_a_bump_that_was_taken_back_says_so(tmp_path):
    service, event = bumped(tmp_path, "healthy")
    Run(service, event=event).action(bump="true")
    write(service.workspace, {"requirements.txt": "transformers==4.48.0\n"})
    git(service.workspace, "commit", "-qam", "back")
    head = git(service.workspace, "rev-parse", "HEAD")
    Run(service, event=event_of(event["pull_request"]["base"]["sha"], head)).action(bump="true")
    (comment,) = service.comments
    assert "no version moves" in comment["body"]


@pytest.mark.long
@pytest.mark.parametrize("refused", ["GET", "POST"])
def test_without_a_token_that_may_write_the_summary_has_the_answer(tmp_path, refused):
    service, event = bumped(tmp_path, "healthy")
    service.environ["FAKE_REFUSED"] = refused
    run = Run(service, event=event)
    assert run.action(bump="true")["exit-code"] == "0"
    assert "::notice title=samebits::no comment" in run.output
    assert service.comments == []
    assert "transformers 4.48.0 → 5.0.0" in service.summary.read_text("utf-8")


@pytest.mark.long
def test_a_range_is_answered_by_what_to_do_and_no_run(tmp_path):
    service, event = bumped(tmp_path, "odd", before="transformers>=4.48", after="transformers>=5")
    run = Run(service, event=event)
    with pytest.raises(StepFailed, match="Pass or fail: exit code 3"):
        run.action(bump="true")
    (comment,) = service.comments
    assert "state one with ==" in comment["body"]


def test_a_bump_of_one_model_is_a_check_of_two_releases(tmp_path):
    pins = {"before": "transformers==4.57", "after": "transformers==5.2.0"}
    service, event = bumped(tmp_path, "healthy", **pins)
    only = tmp_path / "only_bump.py"
    only.write_text(ONLY_BUMP)
    service.environ["FAKE_SAMEBITS"] = os.pathsep.join((sys.executable, str(only), PROGRAM[1]))
    Run(service, event=event).action(bump="true", model="org/name@1", fail="false")
    (asked,) = (command for command in service.commands if command.startswith("['check'"))
    assert asked.startswith("['check', 'org/name@1', '--from', '4.57.0', '--to', '5.2.0',")
    assert "The run ended without a report" in service.comments[0]["body"]


ONLY_BUMP = """
import os, sys
sys.exit(5) if sys.argv[2] != "bump" else os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_a_bump_needs_a_pull_request_and_no_releases(tmp_path):
    service, event = bumped(tmp_path, "healthy")
    for inputs, of in (({}, {}), ({"from": "before", "to": "after"}, event)):
        with pytest.raises(StepFailed, match="leave them out") as raised:
            Run(service, event=of).action(bump="true", **inputs)
        assert raised.value.code == 2


def workflow(service, **inputs):
    """Run the reusable workflow; return the exit code of its run."""
    run = Run(service)
    try:
        run.workflow(matrix="matrix.yaml", **inputs)
    except StepFailed as error:
        if error.name != "Pass or fail":
            raise
        return error.code
    return 0


def test_what_diverges_opens_one_issue_and_no_second_one(service):
    assert workflow(service, issue=True) == 1
    (issue,) = service.issues
    assert issue["title"].startswith("samebits: odd ")
    assert "odd/float32-default" in issue["body"]
    assert "healthy" not in issue["body"]
    assert "https://github.com/someone/project/actions/runs/7" in issue["body"]
    assert workflow(service, issue=True) == 1
    assert len(service.issues) == 1


@pytest.mark.long
def test_a_clean_run_opens_no_issue(tmp_path):
    service = project(tmp_path, "healthy")
    assert workflow(service, issue=True) == 0
    assert service.issues == []


@pytest.mark.long
def test_a_second_model_gets_an_issue_of_its_own(service):
    text = (service.workspace / "matrix.yaml").read_text()
    (service.workspace / "matrix.yaml").write_text(text.replace("  odd:", "  healthy-too:"))
    assert workflow(service, issue=True) == 0
    (service.workspace / "matrix.yaml").write_text(text)
    assert workflow(service, issue=True) == 1
    segfault = text + "  segfault: {build: {architecture: llama}, timeout: 30}\n"
    (service.workspace / "matrix.yaml").write_text(segfault)
    assert workflow(service, issue=True) == 1
    first, second = service.issues
    assert first["title"].startswith("samebits: odd ")
    assert second["title"].startswith("samebits: segfault ")


@pytest.mark.long
def test_a_closed_issue_is_not_opened_again_for_the_same_release(service):
    workflow(service, issue=True)
    service.close_issues()
    assert workflow(service, issue=True) == 1
    assert len(service.issues) == 1


@pytest.mark.long
def test_no_issue_unless_it_is_asked_for(service):
    assert workflow(service) == 1
    assert service.issues == []


@pytest.mark.long
def test_the_watch_opens_one_issue_for_a_cause_and_closes_it_when_the_cause_is_gone(service):
    for _ in range(2):
        assert workflow(service, watch=True) == 1
        (issue,) = service.issues
        assert issue["state"] == "OPEN"
    assert issue["title"].startswith("samebits watch: odd differs, and float64 does not tell how")
    assert "https://github.com/someone/project/actions/runs/7" in issue["body"]
    templates = Path(service.environ["HF_HOME"])
    for path in templates.rglob("*odd*"):
        path.write_bytes(path.with_name(path.name.replace("odd", "healthy")).read_bytes())
    shutil.rmtree(service.workspace / ".samebits")
    assert workflow(service, watch=True) == 0
    (issue,) = service.issues
    assert (issue["state"], issue["stateReason"]) == ("CLOSED", "COMPLETED")
    assert issue["comment"].startswith("Gone: ")


@pytest.mark.long
def test_a_night_without_a_report_opens_one_issue_about_the_watch(tmp_path):
    service = Service(tmp_path, RECORDER)
    only = tmp_path / "only_watch.py"
    only.write_text(ONLY_BUMP.replace("bump", "watch"))
    service.environ["FAKE_SAMEBITS"] = os.pathsep.join((sys.executable, str(only), PROGRAM[1]))
    for _ in range(2):
        assert workflow(service, watch=True) == 5
        (issue,) = service.issues
    assert "could not be looked at" in issue["title"]


def test_a_mistake_opens_no_issue(service):
    (service.workspace / "matrix.yaml").write_text("modles: {}\n")
    assert workflow(service, issue=True) == 2
    assert service.issues == []


def test_the_newest_release_is_resolved_again(tmp_path):
    service = Service(tmp_path, RECORDER)
    with pytest.raises(StepFailed, match="exit code 5"):
        Run(service).workflow(model="x", newest=True)
    assert "'check', 'x', '--upgrade', '--reports'" in service.commands[0]


def test_the_workflow_takes_the_action_of_its_own_commit(tmp_path):
    service = Service(tmp_path, RECORDER)
    run = Run(service)
    with pytest.raises(StepFailed):
        run.workflow(model="x")
    own = [given for name, given in run.used if name == "actions/checkout"][1]
    assert own["repository"] == "owner/samebits"
    assert own["ref"] == "0" * 40
    assert f"./{own['path']}" == SELF


PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
OWN = re.compile(r"<ACCOUNT>/samebits(/\.github/workflows/samebits\.yml)?@v\d+\.\d+\.\d+")


@pytest.mark.parametrize(
    "path", [ROOT / "action.yml", *WORKFLOWS], ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_other_actions_are_pinned_to_a_commit_whose_version_is_beside_it(path):
    """Those of examples/downstream are a part of a file, and name a version."""
    if path.parent.name == "downstream":
        return
    for line in path.read_text("utf-8").splitlines():
        match = re.search(r"uses: (\S+)(?:  ?# (v\d+\.\d+\.\d+))?$", line)
        if match is None:
            assert "uses:" not in line or line.lstrip().startswith("#"), line
            continue
        what, version = match.groups()
        if what == SELF or OWN.fullmatch(what):
            continue
        assert PINNED.fullmatch(what), line
        assert version, f"no version beside the commit: {line}"


def test_the_same_action_has_the_same_commit_everywhere():
    commits = {}
    for path in [ROOT / "action.yml", *WORKFLOWS]:
        for name, commit in re.findall(
            r"uses: ([\w.-]+/[\w-]+)[\w/-]*@([0-9a-f]{40})", path.read_text()
        ):
            commits.setdefault(name, set()).add(commit)
    assert len(commits) >= 4
    assert {name: c for name, c in commits.items() if len(c) > 1} == {}


@pytest.mark.parametrize("name", ["bump.yml", "check.yml", "newest.yml", "watch.yml"])
def test_inputs_of_the_examples_exist(name):
    document = read(ROOT / "examples" / "github" / name)
    called = read(ROOT / ".github" / "workflows" / "samebits.yml")["on"]["workflow_call"]["inputs"]
    (job,) = document["jobs"].values()
    if "uses" in job:
        assert set(job["with"]) <= set(called)
        assert document["permissions"] == {"contents": "read", "issues": "write"}
        assert document["on"]["schedule"]
    else:
        assert set(job["steps"][-1]["with"]) <= set(ACTION["inputs"])


def test_inputs_of_the_how_to_are_those_of_the_action():
    text = (ROOT / "docs" / "how-to" / "github-actions.md").read_text("utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`([\w-]+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(ACTION["inputs"])
    for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        assert yaml.safe_load(block)


def test_an_input_of_the_workflow_reaches_the_action():
    """An input that both have, and that the workflow does not hand on, would be ignored."""
    document = read(ROOT / ".github" / "workflows" / "samebits.yml")
    (step,) = [s for s in steps(document) if s.get("uses") == SELF]
    shared = set(document["on"]["workflow_call"]["inputs"]) & set(ACTION["inputs"])
    for name in shared:
        assert f"inputs.{name} " in step["with"][name]
    assert set(step["with"]) <= set(ACTION["inputs"])
