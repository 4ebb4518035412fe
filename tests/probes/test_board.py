"""A board of progress that one process writes while another one reads it."""

import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from samebits_probe.process import progress

SECONDS = 1.5
STEPS = ("a" * 100, "b" * 100)


def written_by_a_child(board, write):
    """Let a forked process write for a moment; yield while it does."""
    end = time.monotonic() + SECONDS
    pid = os.fork()
    if not pid:
        while time.monotonic() < end:
            write(board)
        os._exit(0)
    while time.monotonic() < end:
        yield
    os.waitpid(pid, 0)


@pytest.mark.processes
def test_the_limit_is_never_read_as_zero_while_a_job_makes_progress():
    board = progress.Board(120.0)
    limits = {board.limit for _ in written_by_a_child(board, lambda b: b.beat(1))}
    assert limits == {120.0}
    assert board.forwards > 1000


@pytest.mark.processes
def test_a_step_is_never_read_in_two_halves():
    board = progress.Board(120.0)
    first = board.read()

    def write(board):
        for text in STEPS:
            board.write(first._replace(phase=text, what=text))

    steps = {
        (step.phase, step.what) for _ in written_by_a_child(board, write) for step in [board.read()]
    }
    assert steps <= {(text, text) for text in STEPS} | {(first.phase, first.what)}
    assert len(steps) > 1


def test_a_board_can_be_closed():
    board = progress.Board(1.0)
    board.beat()
    board.close()
