"""model.alignment: which tensors begin off a boundary, and that copying them changes nothing else."""

import mmap

import torch
from samebits_probe.model import alignment

N = 33


def laid(behind, *shape):
    """Return a tensor that begins so many bytes behind a boundary."""
    room = torch.zeros(torch.Size(shape).numel() + 64)
    skip = (behind - room.data_ptr() % 64) % 64 // 4
    return room[skip:][: torch.Size(shape).numel()].view(shape)


class Model(torch.nn.Module):
    def __init__(self, behind):
        super().__init__()
        self.one = torch.nn.Parameter(laid(behind, 3, N))
        self.tied = self.one
        self.turned = torch.nn.Parameter(laid(behind, N, 3).T)
        self.register_buffer("table", laid(behind, N))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        with torch.no_grad():
            for i, tensor in enumerate((self.one, self.turned, self.table)):
                tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) / (i + 1.5))


def places(model):
    return [tensor.data_ptr() % 64 for tensor in (*model.parameters(), *model.buffers())]


def test_only_what_begins_off_a_boundary_is_copied():
    for behind in (0, 4, 32, 60):
        model = Model(behind)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        pointers = [t.data_ptr() for t in (*model.parameters(), *model.buffers())]
        strides = [t.stride() for t in (*model.parameters(), *model.buffers())]
        assert alignment.n_off(model) == (3 if behind else 0)
        alignment.align(model)
        assert alignment.n_off(model) == 0
        assert places(model) == [0] * 4
        assert model.tied is model.one
        after = model.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert strides == [t.stride() for t in (*model.parameters(), *model.buffers())]
        if not behind:
            assert pointers == [t.data_ptr() for t in (*model.parameters(), *model.buffers())]


def test_a_tensor_whose_copy_would_have_other_strides_is_left():
    model = torch.nn.Module()
    model.register_buffer("part", laid(4, 4, 8)[:, :3])
    model.register_buffer("same", laid(4, 1).expand(5, 3))
    alignment.align(model)
    assert model.part.stride() == (8, 1)
    assert model.same.stride() == (0, 0)
    assert alignment.n_off(model) == 2


def test_a_part_of_a_mapped_file_is_copied_and_what_has_no_bytes_is_none():
    model = torch.nn.Module()
    whole = torch.frombuffer(mmap.mmap(-1, 4096), dtype=torch.float32)
    model.weight = torch.nn.Parameter(whole[1:17].view(4, 4))
    model.empty = torch.nn.Parameter(torch.empty(0))
    model.bare = torch.nn.Parameter(torch.empty(3, device="meta"))
    assert alignment.n_off(model) == 1
    alignment.align(model)
    assert alignment.n_off(model) == 0
