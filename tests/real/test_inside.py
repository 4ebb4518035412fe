"""The checks of tests/inside/ in both stacks: they need torch, and one file each."""

import json
from pathlib import Path

import pytest

INSIDE = Path(__file__).parents[1] / "inside"
FILES = sorted(INSIDE.glob("check_*.py"))


@pytest.mark.parametrize("stack", ["4.48", "5.x"])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_inside(run_script, stack, path, accelerate, beside):
    env = {}
    if path.stem == "check_trainer":
        env["SAMEBITS_ACCELERATE"] = accelerate(stack)
    if path.stem == "check_processors":
        env["SAMEBITS_PILLOW"] = beside(stack, ["pillow"])
    outcomes = json.loads(run_script(stack, INSIDE / "run.py", path, **env).splitlines()[-1])
    assert outcomes
    failed = {name: text for name, text in outcomes.items() if text}
    assert not failed, "\n".join(failed.values())
