"""Every job of a cell computes with the threads of its model, in both releases.

The model writes down the threads of each forward and the modules of samebits that asked for it. Its
logits are others under 5.x, so that it is put on the ladder, traced and grafted.
"""

import shutil

import pytest

from samebits.storage.store import Store
from tests.real.conftest import NEW, OLD, ROOT

pytestmark = pytest.mark.long  # for changes of what a process of an environment is given

RECORD = """        logits = self.lm_head(outputs.last_hidden_state)
        frame, callers = sys._getframe(), set()
        while frame is not None:
            callers.add(frame.f_globals.get("__name__", ""))
            frame = frame.f_back
        names = sorted(name for name in callers if name.startswith("samebits_probe."))
        with open({log!r}, "a") as file:
            file.write(" ".join([str(torch.get_num_threads()), *names]) + "\\n")
        if transformers.__version__.startswith("5"):
            logits = logits * 1.25
"""
MODELS = {"several": 3}
"""Model -> its threads. One thread, which all other tests have, needs no model here."""
JOBS = {
    "samebits_probe.cell.phases.forward",
    "samebits_probe.cell.phases.greedy",
    "samebits_probe.questions.relations.relations",
    "samebits_probe.questions.usage.usage",
    "samebits_probe.jobs.ladder",
    "samebits_probe.questions.crossings.load",
    "samebits_probe.trace.job",
    "samebits_probe.graft.graft",
}


def make(folder, log):
    shutil.copytree(ROOT / "tests" / "custom" / "healthy", folder)
    path = folder / "modeling_tiny.py"
    text = path.read_text("utf-8")
    line = "        logits = self.lm_head(outputs.last_hidden_state)\n"
    assert text.count(line) == text.count("import torch\n") == 1
    text = text.replace(line, RECORD.format(log=str(log)))
    path.write_text(
        text.replace("import torch\n", "import sys\n\nimport torch\nimport transformers\n")
    )


@pytest.fixture(scope="module")
def observed(run_in, tmp_path_factory):
    folder = tmp_path_factory.mktemp("threads")
    models = ""
    for name, threads in MODELS.items():
        make(folder / name, folder / f"{name}.log")
        models += f"  {name}: {{path: {name}, threads: {threads}, trust_remote_code: true}}\n"
    (folder / "matrix.yaml").write_text(f'environments: ["{OLD}", "{NEW}"]\nmodels:\n{models}')
    return run_in(folder), folder


@pytest.mark.parametrize(("model", "threads"), MODELS.items())
def test_every_job_has_the_threads_of_its_model(observed, model, threads):
    _, folder = observed
    lines = [line.split() for line in (folder / f"{model}.log").read_text().splitlines()]
    # inputs are tried, not compared
    compared = [line for line in lines if "samebits_probe.jobs.inputs" not in line]
    assert [line for line in compared if int(line[0]) != threads] == []
    assert {name for _, *names in lines for name in names} >= JOBS


@pytest.mark.parametrize(("model", "threads"), MODELS.items())
def test_captures_and_the_report_have_the_number(observed, model, threads):
    report, folder = observed
    work = folder / ".samebits"
    paths = list(work.glob(f"captures/{model}/*/*/*/[ab].json"))
    assert len(paths) == 4
    assert {Store(work).read_capture(path).threads for path in paths} == {threads}
    (row,) = (row for row in report.rows if row.model == model)
    assert row.threads == threads
    assert [str(cell.verdict) for cell in row.cells] == ["reference", "diverged"]
    assert row.cells[1].cause is not None
    assert row.cells[1].graft is not None
