"""Tests of digests: they depend on content only, and every file is read once."""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from samebits.base import digests as base_digests
from samebits.base import seal
from samebits.base.digests import digest_of, digest_of_file, digest_of_folder, machine_fingerprint


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
        return digest_of_file(path)

    monkeypatch.setattr(base_digests, "digest_of_file", read)
    return names


def test_a_value_is_its_json_whatever_the_order_of_keys():
    assert digest_of({"a": 1, "b": [1, 2]}) == digest_of({"b": [1, 2], "a": 1})
    assert digest_of([1, 2]) != digest_of([2, 1])
    assert len({digest_of(value) for value in (1, 1.0, "1", True, None, [1])}) == 6


def test_a_file_is_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(base_digests, "_CHUNK", 4)
    path = tmp_path / "a"
    for data in (b"", b"abc", b"abcd", b"abcdefghi"):
        path.write_bytes(data)
        assert digest_of_file(path) == hashlib.sha256(data).hexdigest()


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


def test_a_pattern_leaves_files_out(folder, cache):
    before = digest_of_folder(folder, cache, "*.json")
    (folder / "sub" / "a.bin").write_bytes(b"other")
    assert digest_of_folder(folder, cache, "*.json") == before


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
    assert len(json.loads(seal.read(cache))) == 2


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


def test_a_machine_is_known_by_its_processor(monkeypatch):
    before = machine_fingerprint()
    assert machine_fingerprint() == before
    monkeypatch.setattr(base_digests, "_cpu_lines", lambda: ["flags\t: sse2"])
    sse2 = machine_fingerprint()
    assert sse2 != before
    monkeypatch.setattr(base_digests, "_cpu_lines", lambda: ["flags\t: sse2 avx512f"])
    assert machine_fingerprint() != sse2
    monkeypatch.setattr(base_digests.platform, "libc_ver", lambda: ("glibc", "9.99"))
    assert machine_fingerprint() != sse2


def test_a_machine_with_the_kernels_of_another_one_is_another_machine():
    settings = [{}, {"ATEN_CPU_CAPABILITY": "default"}, {"ATEN_CPU_CAPABILITY": "avx2"}]
    assert len({machine_fingerprint(kernels) for kernels in settings}) == 3
    assert machine_fingerprint({}) == machine_fingerprint()


def test_what_changes_from_boot_to_boot_is_no_part_of_the_machine(monkeypatch, tmp_path):
    text = "processor\t: 0\nmodel name\t: X\ncpu MHz\t\t: {}\nflags\t\t: avx2\nbogomips\t: {}\n"
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(base_digests, "Path", lambda _: path)
    lines_by_boot = []
    for clock in (2000, 3100):
        path.write_text(text.format(clock, clock) * 2, "utf-8")
        lines_by_boot.append(base_digests._cpu_lines())
    assert lines_by_boot[0] == lines_by_boot[1] == ["flags\t\t: avx2", "model name\t: X"]


def test_without_proc_the_platform_names_the_processor(monkeypatch, tmp_path):
    monkeypatch.setattr(base_digests, "Path", lambda _: tmp_path / "missing")
    monkeypatch.setattr(base_digests.platform, "processor", lambda: "arm")
    assert base_digests._cpu_lines() == ["arm"]
