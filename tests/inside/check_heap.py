"""model.heap: what nobody wrote shows the pattern of the run, and what was written does not."""

import torch
from samebits_probe.model import heap


def test_every_fresh_tensor_shows_the_pattern():
    said = heap.fill_unwritten("a", "cpu")
    assert "seen in 69 of 69" in said, said
    for shape in (*((n,) for n in range(1, 300)), (3, 5), (1000, 1000)):
        assert heap.holds_pattern(torch.empty(shape), "a")


def test_the_two_runs_never_agree_on_unwritten_memory():
    heap.fill_unwritten("a", "cpu")
    first = torch.empty(1000).clone()
    heap.fill_unwritten("b", "cpu")
    second = torch.empty(1000).clone()
    assert bool((first.view(torch.int32) != second.view(torch.int32)).all())
    assert bool(torch.isfinite(first).all())
    assert bool(torch.isfinite(second).all())


def test_written_tensors_are_not_accused():
    heap.fill_unwritten("a", "cpu")
    for tensor in (torch.zeros(8), torch.ones(8), torch.arange(8.0), torch.randn(8)):
        assert not heap.holds_pattern(tensor, "a")


def test_a_conjugate_is_looked_at_like_any_numbers():
    heap.fill_unwritten("a", "cpu")
    assert heap.holds_pattern(torch.empty(8, dtype=torch.complex64), "a")
    assert not heap.holds_pattern(torch.zeros(8, dtype=torch.complex64).conj(), "a")


def test_a_tensor_of_one_byte_is_no_evidence():
    heap.fill_unwritten("a", "cpu")
    assert not heap.holds_pattern(torch.empty(1, dtype=torch.uint8), "a")
