"""A store on a real server that speaks S3, which the test starts."""

import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from samebits.storage.objects import opened
from samebits.storage.shared import SharedStore
from tests.pipeline.test_sharing import Machine
from tests.storage.test_shared import FILES, NAME
from tests.support.scheduler_bench import Bench

pytestmark = pytest.mark.processes
pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def endpoint():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 60
        while not answers(f"{address}/moto-api/"):
            assert server.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT")).close()
        yield address
    finally:
        server.kill()
        server.wait()


def answers(address):
    try:
        urllib.request.urlopen(address).close()
    except (OSError, urllib.error.URLError):
        return False
    return True


@pytest.fixture
def objects(endpoint, monkeypatch, request):
    """Return a new folder of the bucket, opened as the command line opens it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return opened(f"s3://bucket/{request.node.name}")


def test_a_result_goes_there_and_back(objects):
    store = SharedStore("s3://bucket", objects)
    large = {"model.safetensors": bytes(range(256)) * 80_000}
    assert store.push(NAME, FILES)
    assert store.push("checkpoints/llama", large)
    reader = SharedStore("s3://bucket", objects)
    assert reader.fetch(NAME) == FILES
    assert reader.fetch("checkpoints/llama") == large
    assert reader.fetch("captures/none") is None
    assert reader.has(NAME)
    assert not reader.has("captures/none")
    assert reader.below("captures/") == [NAME]
    assert reader.problems == []


def test_of_two_writers_at_once_one_wins(objects):
    won = []
    start = threading.Barrier(2)

    def write(content):
        start.wait()
        won.append(objects.put(NAME, content))

    threads = [threading.Thread(target=write, args=(c,)) for c in (b"one", b"two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False, True]
    assert objects.get(NAME) in (b"one", b"two")


def test_a_second_machine_runs_nothing(tmp_path, objects):
    runs = Machine(tmp_path / "one", objects, store=SharedStore("s3://bucket", objects)).run()
    second = Machine(tmp_path / "two", objects, store=SharedStore("s3://bucket", objects))
    assert second.run() == runs
    assert second.jobs == []
    assert second.store.problems == []


def test_a_server_that_goes_away_costs_no_result(tmp_path, endpoint, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    gone = SharedStore("s3://bucket", opened("s3://bucket"), pauses=(0, 0))
    machine = Machine(tmp_path / "one", None, store=gone)
    assert machine.run() == Bench(tmp_path / "alone").run()
    assert len(gone.problems) == 2  # reading and writing
