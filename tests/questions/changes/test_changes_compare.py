"""Which changed definitions ran, and which a model can reach that did not run."""

import pytest

from samebits.questions.changes.compare import Side
from samebits.questions.changes.compare import step as step_between
from samebits.questions.changes.release import Release

MODELING = """from ...cache import Cache
from ...utils import helper

class TinyModel:
    def forward(self, x, mask=None):
        if mask is not None:
            x = self._masked(x, mask)
        return helper(x)

    def _masked(self, x, mask):
        return x + mask

    def resize(self, n):
        return n

    def _unused(self):
        return 0

class OtherHead:
    def forward(self, x):
        return x
"""
UTILS = """from .logging import get

def helper(x):
    return x * 2

def lonely(x):
    return x
"""
CACHE = """class Cache:
    def update(self):
        return 1
"""
OWN = "models/tiny/modeling_tiny.py"
FILES = {
    OWN: MODELING,
    "utils/__init__.py": UTILS,
    "cache.py": CACHE,
    "utils/logging.py": "def get():\n    return 1\n",
}


@pytest.fixture
def release(tmp_path):
    """Return what writes a release with some texts replaced."""

    def write(name, *changes):
        for file, text in FILES.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            changed = text
            for before, after in changes:
                changed = changed.replace(before, after)
            path.write_text(changed)
        return Release(tmp_path / name)

    return write


def lines(*names):
    """Return the first lines of functions of the model's file and of utils."""
    texts = {OWN: MODELING, "utils/__init__.py": UTILS}
    return {
        file: [n for n, line in enumerate(text.splitlines(), 1) if line.strip().startswith(names)]
        for file, text in texts.items()
    }


RAN = lines("def forward(self, x, mask", "def helper")


def of(release, *changes, entered=RAN):
    return step_between(
        Side("4.57", release("a"), entered), Side("5.2", release("b", *changes), entered)
    )


def unrun(step):
    return [(entry.name, entry.near) for entry in step.first]


def test_equal_releases_have_no_change(release):
    assert of(release).changed == 0


def test_a_changed_function_that_ran_counts_as_run(release):
    result = of(release, ("x * 2", "x * 3"))
    assert (result.ran, result.unrun, result.unreached) == (1, 0, 0)


@pytest.mark.parametrize(
    ("change", "name", "near"),
    [
        (("x + mask", "x - mask"), "TinyModel._masked", "own"),  # a branch that was not taken
        (("return n\n", "return n + 1\n"), "TinyModel.resize", "own"),  # users call it
    ],
)
def test_a_changed_function_within_reach_that_did_not_run_is_listed(release, change, name, near):
    result = of(release, change)
    assert (result.ran, unrun(result)) == (0, [(name, near)])


@pytest.mark.parametrize(
    "change",
    [("return 0", "return 9"), ("def lonely(x):\n    return x", "def lonely(x):\n    return -x")],
)
def test_what_nothing_refers_to_is_out_of_reach(release, change):
    result = of(release, change)
    assert (result.changed, result.unreached) == (0, 1)


def test_what_one_release_alone_has_counts_by_what_calls_it(release):
    result = of(
        release,
        ("return helper(x)", "return helper(new(x))"),
        ("class OtherHead", "def new(x):\n    return x\n\nclass OtherHead"),
    )
    assert (result.ran, result.unrun) == (1, 0)


def test_a_file_that_cannot_be_read_is_named(release):
    result = of(release, ("class Cache:", "class Cache(:"))
    assert result.unread == ("cache.py",)


def test_the_nearest_come_first(release):
    result = of(release, ("x + mask", "x - mask"), ("return n\n", "return n + 1\n"))
    assert [name for name, _ in unrun(result)] == ["TinyModel._masked", "TinyModel.resize"]
