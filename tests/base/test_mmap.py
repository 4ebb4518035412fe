"""Tests that reading a large tensor takes little memory, and that released pages are read again."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from samebits.base.mmap import map_file, release_pages

ROOT = Path(__file__).parents[2]


def test_what_was_given_back_is_there(tmp_path):
    data = np.arange(1 << 16, dtype=np.float32)
    (tmp_path / "a").write_bytes(data.tobytes())
    values = map_file(tmp_path / "a").view(np.float32).reshape(256, -1)
    assert values.sum() == data.sum()
    release_pages(values[3:, ::2])
    assert np.array_equal(values.reshape(-1), data)


@pytest.mark.parametrize(
    "values", [np.ones(3), np.frombuffer(b"abc", np.uint8)], ids=["own", "bytes"]
)
def test_an_array_that_is_not_mapped_stays(values):
    before = values.copy()
    release_pages(values)
    assert np.array_equal(values, before)


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="counts resident pages as Linux does")
def test_two_large_tensors_that_differ_are_compared_in_a_small_process(tmp_path):
    """bench/host_rates.py verifies and measures them: 256 MB of values, each read twice."""
    command = [sys.executable, "-m", "bench.host_rates", "128", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["grown_mb"] < 110
