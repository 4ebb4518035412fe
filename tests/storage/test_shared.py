"""A store of several machines: what it has is used if it is whole, and nothing it does is believed."""

import threading
import time
import traceback

import pytest
from obstore.store import MemoryStore

from samebits.records.tensor import TensorRef, tensor_hash
from samebits.storage.objects import (
    Obstore,
    StoreAddressError,
    check_address,
    opened,
    shown_address,
)
from samebits.storage.shared import MAX_FAILURES, SharedStore, packed, unpacked
from samebits.storage.sharing import Sharing
from samebits.storage.store import Store
from samebits_wire.seal import sealed

NAME = "captures/llama/float32-sdpa/4.48/0123456789abcdef"
FILES = {"a.json": b'{"run": "a"}', "b.json": b'{"run": "b"}', "empty": b""}


class Fake:
    """Objects that fail, lie or are slow as a test tells them to."""

    def __init__(self, failures=0, error=OSError, lie=lambda content: content, delay=0.0):
        self.objects = {}
        self.failures = failures
        self.error = error
        self.lie = lie
        self.delay = delay
        self.requests = []

    def _request(self, kind, name):
        self.requests.append((kind, name))
        time.sleep(self.delay)
        if self.failures:
            self.failures -= 1
            raise self.error("503 slow down\nwith a stack")

    def get(self, name):
        self._request("get", name)
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.lie(self.objects[name])

    def put(self, name, content, *, replace=False):
        self._request("put", name)
        if name in self.objects and not replace:
            return False
        self.objects[name] = content
        return True

    def has(self, name):
        self._request("has", name)
        return name in self.objects

    def below(self, prefix):
        self._request("below", prefix)
        return [name for name in self.objects if name.startswith(prefix)]


def shared(objects, **options):
    return SharedStore("s3://bucket", objects, **{"pauses": (0, 0), **options})


@pytest.fixture(params=["memory", "folder"])
def objects(request, tmp_path):
    return Obstore(MemoryStore()) if request.param == "memory" else opened(str(tmp_path / "new"))


def test_a_result_comes_back_on_another_machine(objects):
    shared(objects).push(NAME, FILES)
    reader = shared(objects)
    assert reader.fetch(NAME) == FILES
    assert reader.fetch("captures/other") is None
    assert reader.problems == []
    assert shared(objects).below("captures/") == [NAME]
    assert shared(objects).has(NAME)
    assert not shared(objects).has("captures/other")


def test_the_first_writer_wins(objects):
    shared(objects).push(NAME, {"x": b"first"})
    assert shared(objects).push(NAME, {"x": b"second"})
    assert shared(objects).fetch(NAME) == {"x": b"first"}
    shared(objects).push(NAME, {"x": b"third"}, replace=True)
    assert shared(objects).fetch(NAME) == {"x": b"third"}


def test_of_many_writers_at_once_exactly_one_wins_and_its_bytes_are_whole(objects):
    writers = {number: bytes([number]) * 200_000 for number in range(8)}
    start = threading.Barrier(len(writers))

    def write(content):
        start.wait()
        shared(objects).push(NAME, {"x": content})

    threads = [threading.Thread(target=write, args=(c,)) for c in writers.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared(objects).fetch(NAME)["x"] in writers.values()


PACKED = packed(NAME, FILES)
LIES = {
    "nothing": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "one byte less": lambda content: content[:-1],
    "one byte more": lambda content: content + b"x",
    "another format": lambda content: content.replace(b"-object 1 ", b"-object 2 ", 1),
    "no object": lambda content: b"<html>please log in</html>",
    "the object of another name": lambda content: packed("captures/other", FILES),
    "other files, with the old hash": lambda content: content.replace(b'"run"', b'"rUn"'),
    "binary": lambda content: bytes(range(256)) * 9,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_does_not_verify_is_ignored_named_once_and_replaced(lie):
    objects, said = Fake(), []
    shared(objects).push(NAME, FILES)
    objects.lie = lie
    reader = shared(objects, say=said.append)
    assert reader.fetch(NAME) is None
    assert reader.fetch(NAME) is None
    assert len(said) == len(reader.problems) == 1
    assert NAME in said[0]
    assert "is not used" in said[0]
    objects.objects[NAME] = lie(objects.objects[NAME])
    objects.lie = lambda content: content
    assert not reader.has(NAME)
    reader.push(NAME, FILES)
    assert shared(objects).fetch(NAME) == FILES


def test_every_bit_of_an_object_counts():
    for position in range(len(PACKED)):
        changed = bytearray(PACKED)
        changed[position] ^= 1
        with pytest.raises(ValueError, match="it "):
            unpacked(NAME, bytes(changed))
    assert unpacked(NAME, PACKED) == FILES


@pytest.mark.parametrize("error", [OSError, RuntimeError, TimeoutError, KeyError])
def test_what_fails_is_tried_again(error):
    objects = Fake(failures=2, error=error)
    store = shared(objects)
    store.push(NAME, FILES)
    objects.failures = 2
    assert shared(objects).fetch(NAME) == FILES
    assert store.problems == []


def test_a_store_that_keeps_failing_is_given_up_with_one_line():
    objects, said = Fake(failures=10**6), []
    store = shared(objects, say=said.append)
    for number in range(50):
        assert store.fetch(f"captures/{number}") is None
    assert len(objects.requests) == MAX_FAILURES * 3
    assert said == store.problems
    assert len(said) == 1
    assert "no longer read from" in said[0]
    assert "503 slow down" in said[0]
    assert "stack" not in said[0]


def test_a_store_whose_objects_are_all_damaged_is_given_up():
    objects = Fake(lie=lambda content: content[:-1])
    for number in range(50):
        shared(objects).push(f"captures/{number}", FILES)
    store = shared(objects)
    objects.requests.clear()
    assert not any(store.fetch(f"captures/{number}") for number in range(50))
    assert len(objects.requests) == len(store.problems) == 20
    assert "no longer read from" in store.problems[-1]


def test_a_store_that_may_only_be_read_is_still_read():
    objects = Fake()
    shared(objects).push(NAME, FILES)

    def refused(name, content, *, replace=False):
        raise PermissionError(13, "denied")

    objects.put = refused
    store = shared(objects)
    for number in range(10):
        assert not store.push(f"captures/{number}", FILES)
    assert store.fetch(NAME) == FILES
    assert [line for line in store.problems if "no longer written to" in line] == store.problems
    assert len(store.problems) == 1


def test_a_store_that_hangs_costs_its_deadlines_and_no_more():
    objects = Fake(delay=30)
    store = shared(objects, deadline=0.01)
    begin = time.monotonic()
    for number in range(20):
        assert store.fetch(f"captures/{number}") is None
    assert time.monotonic() - begin < 10
    assert "no answer in 0.01 s" in store.problems[0]


def test_a_store_that_is_slow_serves():
    objects = Fake()
    shared(objects).push(NAME, FILES)
    objects.delay = 0.05
    assert shared(objects).fetch(NAME) == FILES


@pytest.mark.parametrize("address", ["ftp://host/x", "s3://", "mem ory://x"])
def test_an_address_that_is_none_is_named_with_its_remedy(address):
    with pytest.raises(StoreAddressError, match="cannot be opened"):
        opened(address)


# the files of a work folder


DATA = bytes(range(24))
REF = TensorRef(hash=tensor_hash("uint8", (24,), DATA), dtype="uint8", shape=(24,), stored=True)
RESULT = "ladders/llama/float32-sdpa/4.48/0123456789abcdef.json"


def work(root, *, text=None, tensor=DATA):
    """Write a result with a tensor, as a run leaves it, and return the path of the result."""
    path = root / RESULT
    path.parent.mkdir(parents=True)
    path.write_text(sealed(text or f'{{"rungs": [{{"logits": {REF.model_dump_json()}}}]}}'))
    if tensor is not None:
        Store(root).tensor_path(REF).parent.mkdir(parents=True)
        Store(root).tensor_path(REF).write_bytes(tensor)
    return path


def sharing(root, store, environ=None):
    return Sharing(root, [store], store, environ or {})


def fetched(root, objects, is_whole=lambda: True):
    store = shared(objects)
    files = sharing(root, store)
    path = root / RESULT
    return files.fetch(RESULT, path.parent, is_whole, [path.name]), store


def test_a_result_and_its_tensors_go_to_another_machine(tmp_path, objects):
    path = work(tmp_path / "one")
    sharing(tmp_path / "one", shared(objects)).push(RESULT, [path])
    assert fetched(tmp_path / "two", objects)[0]
    assert (tmp_path / "two" / RESULT).read_bytes() == path.read_bytes()
    store = Store(tmp_path / "two")
    assert not store.has_file(REF)
    store.fetch = sharing(tmp_path / "two", shared(objects)).fetch_tensor
    assert store.has(REF)
    assert store.tensor(REF).tobytes() == DATA


def test_a_result_is_not_pushed_before_its_tensors(tmp_path):
    objects = Fake()
    path = work(tmp_path, tensor=None)
    sharing(tmp_path, shared(objects)).push(RESULT, [path])
    assert objects.objects == {}
    work(tmp_path / "whole")
    sharing(tmp_path / "whole", shared(objects)).push(RESULT, [path])
    puts = [name for kind, name in objects.requests if kind == "put"]
    assert puts == [f"tensors/{REF.hash[:2]}/{REF.hash}", RESULT]


def test_what_is_there_is_not_sent_again(tmp_path):
    objects = Fake()
    path = work(tmp_path)
    sharing(tmp_path, shared(objects)).push(RESULT, [path])
    objects.requests.clear()
    sharing(tmp_path, shared(objects)).push(RESULT, [path])
    assert objects.requests == [("has", RESULT)]


def test_a_damaged_tensor_is_not_believed(tmp_path):
    objects = Fake()
    path = work(tmp_path / "one", tensor=DATA[::-1])
    sharing(tmp_path / "one", shared(objects)).push(RESULT, [path])
    store = Store(tmp_path / "two")
    store.fetch = sharing(tmp_path / "two", shared(objects)).fetch_tensor
    assert not store.has(REF)
    assert not store.tensor_path(REF).exists()


def test_a_result_with_another_bit_under_a_right_hash_is_refused_by_its_seal(tmp_path):
    objects = Fake()
    content = work(tmp_path / "one").read_bytes().replace(b"uint8", b"uint9")
    shared(objects).push(RESULT, {(tmp_path / RESULT).name: content})
    whole, store = fetched(tmp_path / "two", objects)
    assert not whole
    assert "seal" in store.problems[0]
    assert not (tmp_path / "two" / RESULT).exists()


def test_a_result_that_this_samebits_cannot_read_is_named_and_replaced(tmp_path):
    objects = Fake()
    path = work(tmp_path / "one")
    sharing(tmp_path / "one", shared(objects)).push(RESULT, [path])
    whole, store = fetched(tmp_path / "two", objects, is_whole=lambda: False)
    assert not whole
    assert RESULT in store.problems[0]


@pytest.mark.parametrize("name", ["../x.json", "/etc/x", "a/b", "..", ""])
def test_a_file_that_would_lie_elsewhere_is_refused(tmp_path, name):
    objects = Fake()
    shared(objects).push(RESULT, {name: b"{}"})
    files = sharing(tmp_path / "two", store := shared(objects))
    assert not files.fetch(RESULT, (tmp_path / "two" / RESULT).parent, lambda: True)
    assert "would lie elsewhere" in store.problems[0]
    assert not list(tmp_path.rglob("x*"))


def test_a_result_with_a_secret_stays_on_its_machine(tmp_path):
    objects = Fake()
    path = work(tmp_path, text='{"message": "401 for hf_abcdefgh"}', tensor=None)
    sharing(tmp_path, shared(objects), {"HF_TOKEN": "hf_abcdefgh"}).push(RESULT, [path])
    assert objects.objects == {}
    sharing(tmp_path, shared(objects), {}).push(RESULT, [path])
    assert list(objects.objects) == [RESULT]


SECRETS = ("PASSWORD", "SIGNATURE", "KEYID")


@pytest.mark.parametrize(
    "address",
    [
        "https://user:PASSWORD@host/x",
        "https://PASSWORD@host/x",
        "https://acc.blob.core.windows.net/c/p?sv=1&sig=SIGNATURE",
        "https://user:PASSWORD@host/x?sig=SIGNATURE#PASSWORD",
        "s3://KEYID:PASSWORD@bucket/p",
        "az://container/p?sig=SIGNATURE",
        "gs://KEYID@bucket/p",
        "abfss://KEYID:PASSWORD@acc.dfs.core.windows.net/p",
        "s3://KEYID:PASS/WORD@PASSWORD@bucket/p?x=SIGNATURE",
    ],
)
def test_an_address_with_credentials_is_refused_and_not_shown(address):
    with pytest.raises(StoreAddressError, match="in the environment: AWS_ACCESS_KEY_ID") as refused:
        opened(address)
    chain = "".join(traceback.format_exception(refused.value))
    assert not [secret for secret in SECRETS if secret in str(refused.value)], str(refused.value)
    assert not [secret for secret in SECRETS if secret in chain.replace(address, "")]


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/a@b/p",
        "az://c/p",
        "abfss://c@acc.dfs.core.windows.net/p",
        "file:///a?b#c",
        "x?y@z",
    ],
)
def test_an_address_without_credentials_is_shown_as_it_is(address):
    check_address(address)
    assert shown_address(address) == address or "?" in address
