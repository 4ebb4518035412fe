"""Outcomes of calls: what ends them is the processor time that they took, not how busy the machine was."""

import time

from samebits_probe.cell.outcomes import Outcomes


def test_time_in_which_nothing_runs_leaves_no_call_out():
    outcomes = Outcomes(0.05)
    assert outcomes.call("sleep", "first", lambda: time.sleep(0.2) or 1) == 1
    assert outcomes.call("sleep", "second", lambda: 2) == 2


def test_processor_time_leaves_later_calls_out_with_the_reason():
    outcomes = Outcomes(0.05)
    outcomes.call("sum", "first", _busy, 0.1)
    assert outcomes.call("sum", "second", lambda: 2) is None
    assert "took more than" in str(outcomes.record())


def _busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return 1
