"""The reusable workflow over real releases: a model that 5.2 makes unstable, and its repair."""

import os
import shutil
import sys

import pytest

from samebits.base.patches import patched_files
from tests.real.conftest import ROOT, share_stacks
from tests.support.actions import Run, Service, StepFailed

EXAMPLE = ROOT / "examples" / "downstream"
pytestmark = pytest.mark.long  # for changes of action.yml and of the workflow
PASSED_ON = ("UV_", "PIP_", "SSL_", "REQUESTS_")
"""Variables that say where packages come from."""


def compare(service):
    """Run the workflow; return the exit code of its run."""
    run = Run(service)
    try:
        run.workflow(
            model="model",
            **{"from": "4.57", "to": "5.2"},
            options="--trust-remote-code --quick",
            issue=True,
        )
    except StepFailed as error:
        if error.name != "Pass or fail":
            raise
        return error.code
    return 0


def test_a_model_that_breaks_gets_one_issue_until_it_is_repaired(tmp_path):
    environ = {k: v for k, v in os.environ.items() if k.startswith(PASSED_ON)}
    service = Service(tmp_path, (sys.executable, "-m", "samebits"), PYTHONPATH=str(ROOT), **environ)
    share_stacks(service.temporary / "samebits" / "checks")
    shutil.copytree(EXAMPLE / "model", service.workspace / "model")

    assert compare(service) == 1
    (issue,) = service.issues
    assert issue["title"].startswith("samebits: model unstable under transformers 5.2.")
    assert "SB301" in issue["body"]
    assert "remedy: " in issue["body"]
    assert "SB301" in service.summary.read_text("utf-8")
    assert compare(service) == 1
    assert len(service.issues) == 1

    repaired = patched_files(service.workspace / "model", [EXAMPLE / "repair.diff"])
    for name, text in repaired.items():
        (service.workspace / "model" / name).write_text(text)
    assert compare(service) == 0
    assert len(service.issues) == 1
