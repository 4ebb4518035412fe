"""The lock in examples/downstream is that of its files; tests/real/long_examples.py runs the project itself."""

from samebits.gate.history import files_of
from samebits.gate.lockfile import read_lock
from tests.real.long_examples import EXAMPLE


def test_the_lock_of_the_example_belongs_to_its_files(tmp_path):
    (entry,) = read_lock(EXAMPLE / "samebits.lock").models.values()
    assert entry.files == files_of(EXAMPLE / "model", tmp_path / "hashes.json")
