"""Functions of two releases are the same if their syntax trees are, docstrings aside."""

import pytest

from bench.same_code import changed

BEFORE = '''
class Norm:
    """Normalise."""

    def forward(self, x):
        """Return x."""
        return self.weight * x
'''
SAME = BEFORE.replace('"""Return x."""', '"""Return x, normalised."""').replace("x)", "x  )")
TWINS = {
    "a docstring and blanks": (SAME, 0),
    "an operand": (BEFORE.replace("self.weight * x", "x * self.weight"), 1),
    "a decorator": (BEFORE.replace("    def", "    @kernel\n    def"), 1),
    "no such function": (BEFORE.replace("forward", "call"), 1),
}


@pytest.mark.parametrize(("after", "differing"), TWINS.values(), ids=TWINS)
def test_a_function_differs_if_what_it_computes_may_differ(tmp_path, after, differing):
    for folder, text in (("before", BEFORE), ("after", after)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "norm.py").write_text(text)
    functions = [("norm.py", "Norm.forward")]
    assert changed(functions, tmp_path / "before", tmp_path / "after") == (differing, 1)


def test_a_file_that_a_release_lacks_has_no_function(tmp_path):
    assert changed([("norm.py", "Norm.forward")], tmp_path, tmp_path) == (1, 1)
