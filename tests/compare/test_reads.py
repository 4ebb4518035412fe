"""Equal tensors are neither stored twice nor read at all: their hashes say it."""

import pytest

from samebits.base.hashes import digest_of_folder
from samebits.diagnose import verdict
from samebits.records.ids import Verdict
from samebits_wire import seal
from tests.support.builders import forward, layers, sound, values, weight, weights_signal


def captures(memory, *, hidden=0):
    """Two runs in each of two stacks, whose hidden states are of a seed."""
    for stack, seed in (("4.48", 0), ("5.x", hidden)):
        held = layers(memory, values(1, 6, 8, seed=1), values(1, 6, 8, seed=seed))
        told = {"short": forward(memory, hidden=held, logits=values(1, 6, 8, seed=5))}
        facts = weights_signal({"w": weight(memory, values(4, 4), "w", stored=True)})
        yield tuple(
            sound(memory, stack, run=run, forward=told, weights=facts) for run in ("a", "b")
        )


def test_a_comparison_of_equal_captures_reads_no_tensor(memory):
    one, other = captures(memory)
    found = verdict.result(other[0].cell, other, one, memory)
    assert found.verdict == Verdict.IDENTICAL
    assert memory.reads == 0


def test_only_what_differs_is_read(memory):
    """The meta-test: the same count sees the two sides of the one layer that differs."""
    one, other = captures(memory, hidden=3)
    found = verdict.result(other[0].cell, other, one, memory)
    assert found.verdict == Verdict.UNDECIDED
    assert memory.reads > 0


def test_a_checkpoint_is_hashed_once_however_many_folders_are_looked_at(tmp_path, monkeypatch):
    hashed = []
    real = digest_of_folder.__globals__["hash_of_file"]
    monkeypatch.setitem(
        digest_of_folder.__globals__, "hash_of_file", lambda p: hashed.append(p.name) or real(p)
    )
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text(name)
    for _ in range(3):
        for name in ("a", "b"):
            digest_of_folder(tmp_path / name, tmp_path / "cache.json")
    assert len(hashed) == 2


@pytest.mark.parametrize("n", [8])
def test_folders_hashed_side_by_side_keep_what_each_found(tmp_path, n):
    import json
    from concurrent.futures import ThreadPoolExecutor

    folders = [tmp_path / f"{i}" for i in range(n)]
    for folder in folders:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(folder.name.encode() * 1000)
    cache = tmp_path / "cache.json"
    with ThreadPoolExecutor(n) as pool:
        list(pool.map(lambda folder: digest_of_folder(folder, cache), folders))
    assert len(json.loads(seal.read(cache))["files"]) == n
