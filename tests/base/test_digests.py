"""Tests of digests: they depend on content only, and a machine's on its processor."""

import hashlib

from samebits.base import digests as base_digests
from samebits.base.digests import digest_of, digest_of_file, machine_fingerprint


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
