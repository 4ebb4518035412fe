"""The lock in examples/downstream is that of its files; tests/real/long_examples.py runs the project itself."""

import re

import pytest
import yaml

from samebits.check import pins
from samebits.gate.history import files_of
from samebits.gate.lockfile import read_lock
from tests.check.test_bump import FILES
from tests.real.long_examples import EXAMPLE
from tests.support.actions import ROOT


def test_the_lock_of_the_example_belongs_to_its_files(tmp_path):
    (entry,) = read_lock(EXAMPLE / "samebits.lock").models.values()
    assert entry.files == files_of(EXAMPLE / "model", tmp_path / "hashes.json")


@pytest.mark.parametrize("path", [*FILES, "constraints/ci.txt", "a/b/constraints-ci.txt"])
def test_the_workflow_of_a_bump_starts_for_every_file_that_is_read(path):
    assert pins.is_read(path)
    text = (ROOT / "examples" / "github" / "bump.yml").read_text("utf-8")
    globs = yaml.safe_load(text)[True]["pull_request"]["paths"]
    assert any(re.fullmatch(_pattern(glob), path) for glob in globs)


def _pattern(glob):
    """Return a filter of GitHub as a regular expression: ** crosses folders, * does not."""
    parts = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*"}
    return re.sub(r"\*\*/|\*\*|\*|[^*]+", lambda m: parts.get(m[0], re.escape(m[0])), glob)
