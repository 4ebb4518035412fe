"""Tests of hashes of folders: they depend on content only, and every file is read once."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from samebits.base import filestate
from samebits.base import hashes as base_hashes
from samebits.base.filestate import below
from samebits.base.hashes import digest_of_folder, hash_of_file, hash_of_text, hashes_of_folder
from samebits_wire import seal


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model" / "sub").mkdir(parents=True)
    (tmp_path / "model" / "config.json").write_text("{}", "utf-8")
    (tmp_path / "model" / "sub" / "a.bin").write_bytes(b"abc")
    return tmp_path / "model"


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "work" / "file-hashes.json"


@pytest.fixture
def reads(monkeypatch):
    """Return the list of the files that are read to be hashed."""
    names = []

    def read(path):
        names.append(path.name)
        return hash_of_file(path)

    monkeypatch.setattr(base_hashes, "hash_of_file", read)
    return names


def test_a_file_is_its_bytes(tmp_path, monkeypatch):
    """The first two are the published BLAKE3 of nothing and of "abc"."""
    monkeypatch.setattr(base_hashes, "_CHUNK", 4)
    path = tmp_path / "a"
    for text, start in (("", "af1349b9f5f9a1a6"), ("abc", "6437b3ac38465133"), ("abcdefghi", "")):
        path.write_text(text)
        assert hash_of_file(path) == hash_of_text(text)
        assert hash_of_file(path).startswith(start)


def test_what_lies_behind_a_link_belongs_to_the_folder(folder, cache, tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "a.bin").write_bytes(b"abc")
    (folder / "linked").symlink_to(tmp_path / "shards")
    before = digest_of_folder(folder, cache)
    (tmp_path / "shards" / "a.bin").write_bytes(b"abd")
    assert digest_of_folder(folder, cache) != before


def test_a_folder_is_its_names_and_contents(folder, cache, tmp_path):
    before = digest_of_folder(folder, cache)
    copy = tmp_path / "copy"
    (copy / "sub").mkdir(parents=True)
    for path in ("config.json", "sub/a.bin"):
        (copy / path).write_bytes((folder / path).read_bytes())
    assert digest_of_folder(copy, cache) == before
    (copy / "sub" / "a.bin").rename(copy / "sub" / "b.bin")
    assert digest_of_folder(copy, cache) != before
    (folder / "more").touch()
    assert digest_of_folder(folder, cache) != before


def test_a_file_is_read_once(folder, cache, reads):
    first = digest_of_folder(folder, cache)
    assert sorted(reads) == ["a.bin", "config.json"]
    written = cache.stat().st_mtime_ns, cache.stat().st_ino
    assert digest_of_folder(folder, cache) == first
    assert len(reads) == 2
    assert (cache.stat().st_mtime_ns, cache.stat().st_ino) == written


def test_a_file_that_changed_is_read_again(folder, cache, reads):
    first = digest_of_folder(folder, cache)
    path = folder / "sub" / "a.bin"
    path.write_bytes(b"abd")  # of the same length
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))
    assert digest_of_folder(folder, cache) != first
    assert reads.count("a.bin") == 2
    assert reads.count("config.json") == 1


@pytest.mark.parametrize("text", ["", '{"a": ', "[]", "\udcff"], ids=ascii)
def test_a_torn_cache_is_as_good_as_none(folder, cache, text):
    before = digest_of_folder(folder, cache)
    cache.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert digest_of_folder(folder, cache) == before
    assert len(json.loads(seal.read(cache))["files"]) == 2


def test_folders_can_be_hashed_side_by_side(tmp_path, cache):
    """Several models may use one folder; each model's folder is hashed in a separate thread."""
    folders = [tmp_path / f"m{i}" for i in range(24)]
    for i, folder in enumerate(folders):
        folder.mkdir()
        (folder / "a").write_text(str(i), "utf-8")
    with ThreadPoolExecutor(8) as pool:
        digests = list(pool.map(lambda folder: digest_of_folder(folder, cache), folders))
    assert len(set(digests)) == 24
    assert [path.name for path in cache.parent.iterdir()] == [cache.name]


@pytest.mark.parametrize("changed", [{"hash_algorithm": "sha256"}, {"hash_algorithm": None}, {}])
def test_hashes_of_another_algorithm_are_made_anew(folder, cache, changed):
    """Up to its first release samebits kept SHA-256 under the same names and states of files."""
    right = hashes_of_folder(folder, cache)
    content = json.loads(seal.read(cache))
    wrong = dict.fromkeys(content["files"], "0" * 64)
    kept = {"files": wrong} | changed if changed else wrong
    cache.write_text(seal.sealed(json.dumps(kept)))
    assert hashes_of_folder(folder, cache) == right
    cache.write_text(seal.sealed(json.dumps(content | {"files": wrong})))
    assert set(hashes_of_folder(folder, cache).values()) == {"0" * 64}


# folders that are no checkpoint's alone


def sparse(path, size):
    with path.open("wb") as file:
        file.truncate(size)


def test_a_file_that_is_neither_weights_nor_code_has_a_limit(folder, cache, reads):
    sparse(folder / "backup.img", 4 << 40)
    digest = digest_of_folder(folder, cache)
    assert sorted(reads) == ["a.bin", "config.json"]
    assert hashes_of_folder(folder, cache)["backup.img"] == f"not read: {4 << 40} bytes"
    sparse(folder / "backup.img", 5 << 40)
    assert digest_of_folder(folder, cache) != digest


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.BIN", "tokenizer.model"])
def test_weights_have_none(folder, cache, monkeypatch, name):
    monkeypatch.setattr(base_hashes, "MAX_UNKNOWN", 10)
    (folder / name).write_bytes(b"a" * 11)
    (folder / "notes.txt").write_bytes(b"a" * 11)
    (folder / "code.py").write_bytes(b"a" * 10)
    hashes = hashes_of_folder(folder, cache)
    assert hashes["notes.txt"] == "not read: 11 bytes"
    assert hashes[name] == hash_of_text("a" * 11)
    assert hashes["code.py"] == hash_of_text("a" * 10)


def test_a_link_to_a_folder_that_holds_it_is_not_followed(folder, cache):
    plain = hashes_of_folder(folder, cache)
    (folder / "root").symlink_to("/")
    (folder / "above").symlink_to(folder.parent)
    (folder / "sub" / "self").symlink_to(folder)
    assert hashes_of_folder(folder, cache) == plain
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "b.bin").write_bytes(b"b")
    (folder / "linked").symlink_to(folder.parent / "other")
    assert hashes_of_folder(folder, cache).keys() - plain.keys() == {"linked/b.bin"}


def test_a_folder_of_countless_files_is_refused(folder, monkeypatch):
    monkeypatch.setattr(filestate, "MAX_ENTRIES", 4)
    assert len(list(below(str(folder)))) == 2
    for number in range(4):
        (folder / "sub" / str(number)).mkdir()
    with pytest.raises(OSError, match="more than 4 files and folders") as refused:
        list(below(str(folder)))
    assert refused.value.filename == str(folder)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert hash_of_file(tmp_path / "pipe") == hash_of_text("")
