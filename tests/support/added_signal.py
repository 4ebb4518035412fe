"""A signal that is added as CONTRIBUTING says: its unit, and captures that observed it."""

import sys

import pytest

from samebits.compare import registry
from tests.support.builders import with_signals

TOY = """
\"\"\"Signal ``toy``: the largest logit of every position.\"\"\"

from samebits.compare.named import named_unit

SIGNAL = named_unit("toy", 65, "forward")
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Add the file of one signal, and nothing else."""
    (tmp_path / "toy_units").mkdir()
    (tmp_path / "toy_units" / "toy.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    (unit,) = registry.discover([str(tmp_path / "toy_units")], "toy_units")
    every = tuple(sorted((*registry.units(), unit), key=lambda unit: unit.order))
    monkeypatch.setattr(registry, "units", lambda: every)
    monkeypatch.setattr(sys.modules["samebits.compare.stability"], "units", lambda: every)
    registry.signals_of_word.cache_clear()
    yield unit
    registry.signals_of_word.cache_clear()


def with_toy(memory, capture, **items):
    """Return a run that also observed one tensor of the signal for each prompt."""
    named = {"toy": {prompt: {"": memory.put(value)} for prompt, value in items.items()}}
    return with_signals(capture, named=named)
