"""The command that a report gives to run a cell again runs that cell, wherever its matrix lies."""

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from samebits import cli
from samebits.matrix.plan import PlannedRow
from samebits.pipeline import rows
from samebits.pipeline.order import Order
from tests.support.builders import Memory, cell_id, sound
from tests.support.sample_report import sample_report

HOME = Path.home()


def command_of(matrix):
    """Return the command that a report gives for a cell of a matrix."""
    memory = Memory()
    cells = cell_id("4.48"), cell_id("5.0")
    runs = {c: (sound(memory, c.stack), sound(memory, c.stack, run="b")) for c in cells}
    row = PlannedRow(
        model=cells[0].model, variant=cells[0].variant, cells=cells, reference=cells[0].stack
    )
    order = Order(matrix=matrix, program=("nox", "-s", "matrix"))
    scope = SimpleNamespace(order=order, store=memory, matrix=SimpleNamespace(stacks=()))
    _, other = rows._results_of(scope, row, runs)
    return other.reproduce


@pytest.mark.parametrize(
    ("matrix", "named", "reports"),
    [
        (Path("matrix.yaml"), "", "reports/reproduce/llama@5.0"),
        (
            Path("../mine/matrix.yaml"),
            "--matrix ../mine/matrix.yaml ",
            "../mine/reports/reproduce/llama@5.0",
        ),
        (
            HOME / "my files/matrix.yaml",
            f"--matrix '{HOME}/my files/matrix.yaml' ",
            f"'{HOME}/my files/reports/reproduce/llama@5.0'",
        ),
        (
            Path("/srv/my files/matrix.yaml"),
            "--matrix '…/matrix.yaml' ",
            "'…/reports/reproduce/llama@5.0'",
        ),
    ],
    ids=["default", "beside", "below the home", "this machine's"],
)
def test_the_command_names_the_matrix_as_it_was_typed(matrix, named, reports):
    """One given by its full path was left out, and the command ran the default matrix.

    Where a folder of this machine is no reader's business, the command finds nothing.
    """
    command = command_of(matrix)
    assert command.startswith(f"nox -s matrix -- {named}--models llama ")
    assert command.endswith(f" --environments 4.48,5.0 --reports {reports}")


def test_a_command_that_is_pasted_leaves_the_report_that_it_is_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("matrix.yaml").write_text("models: {llama: {build: llama}}\n")
    reports = []

    async def ran(order, environ, progress, dependencies):
        return sample_report(), {}

    monkeypatch.setattr("samebits.cli.matrix.run_matrix", ran)
    monkeypatch.setattr(
        "samebits.cli.report.write",
        lambda report, folder, beside, _formats, **_: reports.append(folder),
    )
    command = shlex.split(command_of(Path("matrix.yaml")))
    assert command[:4] == ["nox", "-s", "matrix", "--"]
    for arguments in ([], command[4:]):
        with pytest.raises(AttributeError):  # nothing was written
            cli.run(["matrix", *arguments], {"HOME": "/h"})
    assert reports == [Path("reports/latest"), Path("reports/reproduce/llama@5.0")]
