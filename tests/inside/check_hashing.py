"""process.hashing: BLAKE3 is there, and nothing else in the process changes by it."""

import importlib.metadata
import importlib.util
import math
import os
import sys
import tempfile
from pathlib import Path

import torch
from samebits_probe.process import hashing

ABC = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
"""The published hash of "abc"."""


def threads():
    return len(list(Path("/proc/self/task").iterdir()))


def test_it_is_the_published_hash():
    assert hashing.hasher(b"abc").hexdigest() == ABC
    path = Path(tempfile.mkdtemp()) / "a"
    for data in (b"", b"abc", bytes(range(256)) * 4096):
        path.write_bytes(data)
        assert hashing.file_hash(path) == hashing.hasher(data).hexdigest()


def test_no_path_leads_to_it():
    """A model that asks whether blake3 is installed gets the answer of its own stack."""
    assert "samebits_blake3" in sys.modules
    assert not [path for path in sys.path if "samebits-packages" in path]
    installed = {d.metadata["Name"] for d in importlib.metadata.distributions()}
    found = "blake3" in sys.modules or importlib.util.find_spec("blake3") is not None
    assert found == ("blake3" in installed)


def test_another_blake3_is_another_module():
    """As if the user's stack had the package: both are loaded, and both work."""
    folder = Path(sys.prefix) / "samebits-packages"
    copy = Path(tempfile.mkdtemp())
    for path in (folder / "blake3").iterdir():
        if path.is_file():
            (copy / "blake3").mkdir(exist_ok=True)
            (copy / "blake3" / path.name).write_bytes(path.read_bytes())
    sys.path.append(str(copy))
    import blake3

    assert Path(blake3.__file__).is_relative_to(copy)
    assert blake3.blake3 is not hashing.hasher
    assert blake3.blake3(b"abc").hexdigest() == hashing.hasher(b"abc").hexdigest() == ABC


def test_it_starts_no_thread_and_a_fork_can_hash():
    data = bytes(64 << 20)
    before = threads()
    digest = hashing.hasher(data).hexdigest()
    assert threads() == before
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, hashing.hasher(data).hexdigest().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 100).decode() == digest
    many = hashing.hasher(data, max_threads=4)
    assert many.hexdigest() == digest  # a number of threads changes nothing but the time
    assert threads() > before, "the count would not notice a thread"


def test_arithmetic_is_as_before():
    """A library that sets the processor to flush small numbers to zero changes what torch computes."""
    hashing.hasher(bytes(1 << 20)).digest()
    small = torch.full((64,), 1e-40)
    assert (small / 2).max().item() > 0
    assert math.ldexp(1.0, -1074) > 0
    assert torch.get_num_threads() == 1 or os.environ.get("OMP_NUM_THREADS") != "1"


def test_a_folder_without_it_says_what_to_do():
    folder = Path(tempfile.mkdtemp())
    try:
        hashing._load(folder)
    except ImportError as error:
        assert str(folder) in str(error)
        assert "a run of samebits installs it" in str(error)
    else:
        assert not folder, "it was found"
    assert hashing.hasher(b"abc").hexdigest() == ABC
