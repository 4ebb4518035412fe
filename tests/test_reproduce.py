"""The command that a report gives to run a cell again runs that cell, wherever its matrix lies."""

from pathlib import Path

import pytest
from builders import Memory, cell_id, sound

from samebits import run
from samebits.plan import PlannedRow


@pytest.mark.parametrize(
    ("matrix", "named"),
    [
        (Path("matrix.yaml"), ""),
        (Path("../mine/matrix.yaml"), "--matrix ../mine/matrix.yaml "),
        (Path.home() / "my files/matrix.yaml", f"--matrix '{Path.home()}/my files/matrix.yaml' "),
        (Path("/srv/my files/matrix.yaml"), "--matrix '…/matrix.yaml' "),
    ],
    ids=["default", "beside", "below the home", "this machine's"],
)
def test_the_command_names_the_matrix_as_it_was_typed(matrix, named):
    """One given by its full path was left out, and the command ran the default matrix.

    Where a folder of this machine is no reader's business, the command finds nothing.
    """
    memory = Memory()
    cells = cell_id("4.48"), cell_id("5.0")
    runs = {c: (sound(memory, c.stack), sound(memory, c.stack, run="b")) for c in cells}
    row = PlannedRow(
        model=cells[0].model, variant=cells[0].variant, cells=cells, reference=cells[0].stack
    )
    _, other = run._results(run.Order(matrix=matrix), [row], runs, memory)
    assert other.reproduce.startswith(f"nox -s matrix -- {named}--models llama ")
    assert other.reproduce.endswith(" --stacks 4.48,5.0")
