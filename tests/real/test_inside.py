"""The checks of tests/inside/ in both stacks: they need torch, and one file each."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from samebits.stacks.environment import probe_environment

INSIDE = Path(__file__).parents[1] / "inside"
FILES = sorted(INSIDE.glob("check_*.py"))


@pytest.mark.parametrize("stack", ["4.48", "5.x"])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_inside(stacks, stack, path, tmp_path, accelerate, beside):
    env = probe_environment(os.environ, needs_hub=False, modules_cache=str(tmp_path))
    if path.stem == "check_trainer":
        env |= {"SAMEBITS_ACCELERATE": accelerate(stack)}
    if path.stem == "check_processors":
        env |= {"SAMEBITS_PILLOW": beside(stack, ["pillow"])}
    command = [stacks[stack].python, str(INSIDE / "run.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert outcomes
    failed = {name: text for name, text in outcomes.items() if text}
    assert not failed, "\n".join(failed.values())
