"""model.tensor: the hash is the bits, and the bytes that are kept are the tensor's."""

import os
import tempfile
from pathlib import Path

import torch
from raising import raised
from samebits_probe.model import heap
from samebits_probe.model.tensor import (
    Keeper,
    NotHashable,
    raw_bytes,
    same_bytes,
    stored,
    tensor_hash,
)
from samebits_probe.process import files
from samebits_probe.process.fork import run_in_fork


def test_signed_zero_and_nan_payload_are_other_bits():
    assert tensor_hash(torch.tensor([0.0])) != tensor_hash(torch.tensor([-0.0]))
    quiet, other = (
        torch.tensor([n], dtype=torch.int32).view(torch.float32) for n in (0x7FC00000, 0x7FC00001)
    )
    assert tensor_hash(quiet) != tensor_hash(other)
    assert tensor_hash(quiet) == tensor_hash(quiet.clone())


def test_an_element_of_a_column_has_bytes():
    """torch calls one element contiguous whatever its stride is, and makes no bytes of it."""
    for dtype in (torch.bfloat16, torch.float32, torch.complex64):
        column = torch.arange(32).to(dtype).reshape(4, 8)[:1, 5]
        assert column.stride() == (8,)
        assert bytes(raw_bytes(column)) == bytes(
            raw_bytes(column.clone(memory_format=torch.contiguous_format))
        )
        assert heap.elements(column).tolist() == [
            list(bytes(raw_bytes(torch.tensor([5.0], dtype=dtype))))
        ]


def test_dtype_and_shape_are_part_of_the_hash():
    x = torch.arange(6, dtype=torch.float32)
    assert tensor_hash(x) != tensor_hash(x.reshape(2, 3))
    assert tensor_hash(x.view(torch.int32)) != tensor_hash(x)


def test_a_transposed_matrix_is_another_tensor_and_a_strided_one_is_not():
    x = torch.arange(6.0).reshape(2, 3)
    assert tensor_hash(x) != tensor_hash(x.t())
    assert tensor_hash(x.t().contiguous()) == tensor_hash(x.t())


def test_zero_dimensional_boolean_complex_and_empty_tensors_have_bytes():
    assert len(raw_bytes(torch.tensor(1.5))) == 4
    assert len(raw_bytes(torch.tensor([True, False]))) == 2
    assert len(raw_bytes(torch.ones(2, dtype=torch.complex64))) == 16
    assert len(raw_bytes(torch.empty(0, 3))) == 0
    assert len(raw_bytes(torch.ones(3, dtype=torch.bfloat16))) == 6


def test_a_conjugate_is_the_numbers_that_it_stands_for():
    turns = torch.polar(torch.ones(4), torch.arange(4.0))
    for lazy in (turns.conj(), turns.conj().imag, turns.conj().t()):
        assert tensor_hash(lazy) == tensor_hash(lazy.resolve_conj().resolve_neg().clone())
    assert tensor_hash(turns.conj()) != tensor_hash(turns)


def test_sparse_and_packed_tensors_are_told_apart_by_their_parts_and_never_stored():
    def packed(value, scale=0.1):
        return torch.quantize_per_tensor(torch.full((3,), value), scale, 0, torch.quint8)

    def channels(scales):
        zeros = torch.zeros(2, dtype=torch.int64)
        return torch.quantize_per_channel(torch.ones(2, 3), scales, zeros, 0, torch.qint8)

    eye = torch.eye(4)
    kinds = [
        (eye.to_sparse(), (eye * 2).to_sparse(), "sparse_coo float32"),
        (eye.to_sparse_csr(), (eye * 2).to_sparse_csr(), "sparse_csr float32"),
        (eye.to_sparse_csc(), (eye * 2).to_sparse_csc(), "sparse_csc float32"),
        (packed(1.0), packed(2.0), "quint8"),
        (packed(1.0), packed(1.0, 0.2), "quint8"),
        (channels(torch.ones(2) / 8), channels(torch.tensor([0.125, 0.25])), "qint8"),
    ]
    with tempfile.TemporaryDirectory() as root:
        keeper = Keeper(root, 1 << 20, [])
        for one, other, name in kinds:
            assert tensor_hash(one) == tensor_hash(one.clone())
            assert tensor_hash(one) != tensor_hash(other)
            ref = keeper.ref(one)
            assert (ref["dtype"], ref["stored"]) == (name, False)
        assert not list(Path(root).iterdir())
    twice = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,))
    assert tensor_hash(twice) == tensor_hash(twice.coalesce())


def test_a_meta_tensor_has_none():
    reason = raised(NotHashable, tensor_hash, torch.empty(2, device="meta"))
    assert "meta" in str(reason)


def test_bytes_are_compared_and_not_values():
    zero, nan = torch.tensor([0.0, 1.0]), torch.tensor([float("nan"), 1.0])
    assert same_bytes(zero, zero.clone())
    assert same_bytes(nan, nan.clone())
    assert not same_bytes(zero, torch.tensor([-0.0, 1.0]))
    assert not same_bytes(zero, zero[:1])
    assert same_bytes(zero[:0], nan[:0])
    large = torch.arange(1 << 19, dtype=torch.float32)
    assert same_bytes(large, large.reshape(512, -1))
    assert same_bytes(large.T, large)
    for place in (0, 1 << 18, -1):
        other = large.clone()
        other[place] += 1
        assert not same_bytes(large, other), place
    grid = large.reshape(512, -1)
    assert same_bytes(grid.T, grid.T.contiguous())
    assert not same_bytes(grid.T, grid)


def test_keeper_stores_small_and_wanted_tensors_only():
    with tempfile.TemporaryDirectory() as root:
        small, large, wanted = torch.ones(2), torch.ones(100), torch.zeros(100)
        keeper = Keeper(root, limit=16, wanted=[tensor_hash(wanted)])
        refs = [keeper.ref(t) for t in (small, large, wanted)]
        assert [ref["stored"] for ref in refs] == [True, False, True]
        files = {path.stem: path.read_bytes() for path in Path(root).rglob("*.bin")}
        assert files == {
            ref["hash"]: bytes(raw_bytes(t)) for ref, t in zip(refs[::2], (small, wanted))
        }
        assert not list(Path(root).rglob("*.tmp"))


def test_known_hashes_are_those_of_the_host():
    import json

    for line in json.loads(Path(__file__).with_name("hashes.json").read_text()):
        flat = torch.tensor(list(bytes.fromhex(line["bytes"])), dtype=torch.uint8)
        tensor = flat.view(getattr(torch, line["dtype"])).reshape(line["shape"])
        assert tensor_hash(tensor) == line["hash"], line


def test_what_another_process_kept_is_read_by_its_hash():
    keeper = Keeper(tempfile.mkdtemp(), 1 << 20, [])
    kinds = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
    for tensor in [torch.arange(6).reshape(2, 3).to(kind) for kind in kinds]:
        assert same_bytes(stored(keeper.root, keeper.ref(tensor)), tensor)
    for tensor in (torch.tensor(2.5), torch.empty(0, 4)):
        assert stored(keeper.root, keeper.ref(tensor)).shape == tensor.shape


def kept_in(folder, tensor):
    """Keep a tensor as a new job does; return its reference and its file."""
    keeper = Keeper(folder, 1 << 20, [])
    ref = keeper.ref(tensor)
    return ref, keeper.root / ref["hash"][:2] / f"{ref['hash']}.bin"


def fault_of(path, ref):
    try:
        stored(path.parents[1], ref)
    except files.StoreFault as fault:
        return str(fault)
    return ""


def flipped(path):
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def flipped_with_old_times(path):
    times = path.stat()
    flipped(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def zeroed(path):
    path.write_bytes(bytes(path.stat().st_size))


def cut(path):
    path.write_bytes(path.read_bytes()[:-4])


def in_the_way(make):
    def put(path):
        path.unlink()
        make(path)

    return put


def filled_folder(path):
    (path / "below").mkdir(parents=True)
    (path / "below" / "file").write_text("text")


DAMAGES = {
    "flipped": flipped,
    "flipped with old times": flipped_with_old_times,
    "zeroed": zeroed,
    "cut": cut,
    "missing": Path.unlink,
    "a pipe": in_the_way(os.mkfifo),
    "a folder": in_the_way(filled_folder),
    "a link to itself": in_the_way(lambda path: path.symlink_to(path)),
    "a device": in_the_way(lambda path: path.symlink_to("/dev/zero")),
}


def test_a_damaged_tensor_is_a_fault_of_the_store_and_is_written_again():
    """Also where its size is the same; a job that makes a tensor again must leave its bytes."""
    tensor = torch.arange(6.0)
    for name, damage in DAMAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            ref, path = kept_in(folder, tensor)
            assert not fault_of(path, ref)
            damage(path)
            assert fault_of(path, ref), name
            kept_in(folder, tensor)
            assert not fault_of(path, ref), name
            assert not list(Path(folder).rglob("*.tmp"))


def test_a_whole_tensor_is_not_written_again():
    with tempfile.TemporaryDirectory() as folder:
        _, path = kept_in(folder, torch.arange(6.0))
        before = path.stat()
        kept_in(folder, torch.arange(6.0))
        after = path.stat()  # its time of access may be another one
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_no_handler_of_a_model_s_exceptions_takes_a_fault_of_the_store():
    assert not issubclass(files.StoreFault, Exception)
    for read in (files.read_sealed, lambda path: run_in_fork(lambda: files.read_sealed(path))):
        fault = raised(files.StoreFault, read, Path("missing.json"))
        assert "missing.json cannot be read: No such file" in str(fault)
