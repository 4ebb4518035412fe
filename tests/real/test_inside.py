"""The checks of tests/inside/ in a release: they need torch, and one file each.

All run in the newest release, and most of those that name the releases in the oldest, too; long_inside.py has the
rest.
"""

import json
import re
from pathlib import Path

import pytest

from tests.real.conftest import NEW, OLD

INSIDE = Path(__file__).parents[1] / "inside"
FILES = sorted(INSIDE.glob("check_*.py"))
NAMES_RELEASES = re.compile(r"\b(NEW|OLD|forks|__version__)\b")
"""What a check has whose code goes another way in another release."""


LONG = {
    "check_integrity",
    "check_multimodal",
    "check_relations",
    "check_several",
    "check_small",
    "check_training",
}
"""Checks that take half a minute in the oldest release; long_inside.py has them."""


def in_oldest(path):
    return path.stem not in LONG and bool(NAMES_RELEASES.search(path.read_text("utf-8")))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_inside(inside, path):
    inside(NEW, path)


@pytest.mark.parametrize("path", [*filter(in_oldest, FILES)], ids=lambda p: p.stem)
def test_inside_the_oldest(inside, path):
    inside(OLD, path)


@pytest.fixture
def inside(run_script, accelerate, beside):
    """Return a function that runs the checks of a file in a release, all of which must pass."""

    def run(stack, path):
        env = {}
        if path.stem == "check_trainer":
            env["SAMEBITS_ACCELERATE"] = accelerate(stack)
        if path.stem == "check_processors":
            env["SAMEBITS_PILLOW"] = beside(stack, ["pillow"])
        outcomes = json.loads(run_script(stack, INSIDE / "run.py", path, **env).splitlines()[-1])
        assert outcomes
        failed = {name: text for name, text in outcomes.items() if text}
        assert not failed, "\n".join(failed.values())

    return run
