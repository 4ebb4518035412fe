"""A signal that is added as CONTRIBUTING says: its unit, and captures that observed it."""

import pytest

from samebits.compare import registry, units
from samebits.compare.named import named_unit
from tests.support.builders import with_signals

TOY = named_unit("toy", 65, "forward")


@pytest.fixture
def toy(monkeypatch):
    """Add the unit of one signal, and nothing else."""
    monkeypatch.setattr(units, "UNITS", (*units.UNITS, TOY))
    caches = registry.units, registry.signals_of_word
    for cache in caches:
        cache.cache_clear()
    yield TOY
    for cache in caches:
        cache.cache_clear()


def with_toy(memory, capture, **items):
    """Return a run that also observed one tensor of the signal for each prompt."""
    named = {"toy": {prompt: {"": memory.put(value)} for prompt, value in items.items()}}
    return with_signals(capture, named=named)
