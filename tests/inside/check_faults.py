"""Damaged checkpoint files, networks that nobody needs and processes that are left behind."""

import json
import os
import random
import signal
import socket
import tempfile
import time
from pathlib import Path

import torch
from raising import raised
from safetensors.torch import save_file
from samebits_probe.model.checkpoint import Checkpoint, Refused, refuse_code, refuse_outside
from samebits_probe.process import network
from samebits_probe.process.fork import run_in_fork


def damaged(content, chance):
    """Return a file cut, with bits flipped in its header, or with another length of header."""
    kind, at = chance.choice(["cut", "flip", "length", "insert"]), chance.randrange(len(content))
    if kind == "cut":
        return content[:at]
    if kind == "flip":
        at = chance.randrange(min(300, len(content)))
        return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]
    if kind == "length":
        return chance.randrange(1 << 63).to_bytes(8, "little") + content[8:]
    return content[:at] + chance.randbytes(5) + content[at:]


def test_a_damaged_file_is_an_error_or_tensors_and_never_a_crash():
    chance, refused = random.Random(1), 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file({f"layers.{n}.weight": torch.ones(4, 4) for n in range(3)}, path)
        content = path.read_bytes()
        for _ in range(500):
            path.write_bytes(damaged(content, chance))
            try:
                found = Checkpoint.find(folder, None)
                total = sum(found.tensor(name).numel() for name in found)
                found.dtypes()
                assert total <= len(content)
            except Exception:
                refused += 1
    assert 250 < refused < 500


def index(folder, shard):
    text = json.dumps({"weight_map": {"a": shard}})
    (Path(folder) / "model.safetensors.index.json").write_text(text)


def test_an_index_that_leads_out_of_its_folder_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        refuse_outside(folder)
        for shard in ("model-1.safetensors", "sub/model-1.safetensors", "..safetensors"):
            index(folder, shard)
            refuse_outside(folder)
        for shard in ("../a.safetensors", "a/../../b", "/etc/passwd", ".."):
            index(folder, shard)
            error = raised(Refused, refuse_outside, folder)
            assert repr(shard) in str(error)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_that_runs_code_is_refused_and_one_of_weights_is_read():
    weights = {"a": torch.ones(3)}
    for archive in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pytorch_model.bin"
            torch.save(weights, path, _use_new_zipfile_serialization=archive)
            refuse_code(folder)
            assert Checkpoint.find(folder, None).tensor("a").tolist() == [1.0, 1.0, 1.0]
            evil = {"a": torch.ones(3), "b": Evil(f"{folder}/owned")}
            torch.save(evil, path, _use_new_zipfile_serialization=archive)
            error = raised(Refused, refuse_code, folder)
            assert "pytorch_model.bin is a pickle that is not weights alone" in str(error)
            assert "posix.mkdir" in str(error), error
            assert not (Path(folder) / "owned").exists()


def refused(function):
    try:
        function()
    except ConnectionRefusedError as error:
        return network.REFUSAL in str(error)
    return False


def test_only_a_model_of_the_hub_needs_the_network():
    with tempfile.TemporaryDirectory() as folder:
        assert not network.needed({"kind": "build"})
        assert not network.needed({"model": {"source": folder}})
        assert network.needed({"model": {"source": "org/name"}})


def test_what_is_refused_is_refused_however_it_is_asked_for():
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        socket.create_connection(place).close()
        os.environ["HF_TOKEN"] = "hf_secret"
        network.refuse()
        assert "HF_TOKEN" not in os.environ
        assert refused(lambda: socket.create_connection(place))
        assert refused(lambda: socket.getaddrinfo("localhost", 80))
        with socket.socket() as one, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            assert refused(lambda: one.connect(place))
            assert refused(lambda: one.connect_ex(place))
            assert refused(lambda: other.sendto(b"x", place))


def test_pipes_and_sockets_of_this_machine_s_files_are_left_alone():
    network.refuse()
    one, other = socket.socketpair()
    one.send(b"x")
    assert other.recv(1) == b"x"
    with tempfile.TemporaryDirectory() as folder:
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"{folder}/s")
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{folder}/s")
        server.close()


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_runs_apart_ends_with_what_waits_for_it():
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "pid"

        def hang():
            (Path(folder) / "aside").write_text(str(os.getpid()))
            (Path(folder) / "aside").rename(told)
            time.sleep(600)

        pid = os.fork()
        if pid == 0:
            run_in_fork(hang)
            os._exit(0)
        while not told.exists():
            time.sleep(0.01)
        child = int(told.read_text())
        assert lives(child)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        end = time.monotonic() + 5
        while lives(child) and time.monotonic() < end:
            time.sleep(0.01)
        assert not lives(child)
