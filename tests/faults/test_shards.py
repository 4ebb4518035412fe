"""Several machines and one report: stores and shards, with the command line and processes as they are."""

import json
import os
import shutil
import signal

import pytest

from tests.support.faulty_bench import Bench, Host, timeless

pytestmark = pytest.mark.processes
MODELS = ("healthy", "odd", "segfault")


@pytest.fixture(scope="module")
def alone(host, tmp_path_factory):
    """Return the bytes of the report of one run."""
    bench = Bench(tmp_path_factory.mktemp("alone"), *MODELS)
    assert host.run(bench) == 1, bench.said
    return text_of(bench)


def text_of(bench):
    """Return report.json without what no run can repeat."""
    return json.dumps(timeless(bench.report), indent=1)


def machines(folder, *names):
    return [Bench(folder / name, *MODELS) for name in names]


def test_a_second_machine_takes_everything_from_the_store(host, alone, tmp_path):
    first, second = machines(tmp_path, "one", "two")
    store = str(tmp_path / "store")
    assert host.run(first, "--store", store) == 1, first.said
    assert host.run(second, "--store", store) == 1, second.said
    assert text_of(first) == text_of(second) == alone
    logs = [path for path in second.files("captures/**/*.log") if "segfault" not in str(path)]
    assert logs == []  # what crashes may be the machine, and ran again
    assert first.files("captures/**/*.log")


def test_a_store_that_cannot_be_used_is_named_and_changes_no_result(host, alone, tmp_path):
    (bench,) = machines(tmp_path, "one")
    store = tmp_path / "store"
    assert host.run(bench, "--store", str(store)) == 1
    for path in [path for path in store.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    (second,) = machines(tmp_path, "two")
    assert host.run(second, "--store", str(store)) == 1
    report = second.report
    assert all("is not used" in line for line in report["notes"])
    assert report.pop("notes")
    assert json.dumps(timeless(report), indent=1) == alone
    assert "is not used" in (second.folder / "report" / "report.md").read_text()
    (third,) = machines(tmp_path, "three")  # the second one has replaced it
    assert host.run(third, "--store", str(store)) == 1
    assert text_of(third) == alone


def test_two_machines_at_once_with_one_store(alone, tmp_path):
    benches = machines(tmp_path, "one", "two")
    hosts = [Host() for _ in benches]
    for host, bench in zip(hosts, benches, strict=True):
        host.begin(bench, "--store", str(tmp_path / "store"))
    assert [host.end() for host in hosts] == [1, 1]
    for host, bench in zip(hosts, benches, strict=True):
        host.close()
        assert text_of(bench) == alone


@pytest.mark.parametrize("uses_store", [True, False], ids=["store", "folders"])
def test_shards_merged_are_one_run(host, alone, tmp_path, uses_store):
    store = ("--store", str(tmp_path / "store")) if uses_store else ()
    benches = machines(tmp_path, "one", "two", "three")
    for number, bench in enumerate(benches, 1):
        assert host.run(bench, "--shard", f"{number}/3", *store) == 0, bench.said
        assert f"Shard {number}/3: 2 cells" in bench.said
    (merge,) = machines(tmp_path, "merge")
    folders = [str(b.folder / "shards" / f"{n}-of-3") for n, b in enumerate(benches, 1)]
    assert host.run(merge, "merge", *(store or folders)) == 1, merge.said
    assert text_of(merge) == alone
    assert {path.parts[-5] for path in merge.files("captures/*/*/*/*/*.log")} == {"segfault"}


def test_folders_that_were_copied_together_are_one(host, alone, tmp_path):
    benches = machines(tmp_path, "one", "two")
    for number, bench in enumerate(benches, 1):
        assert host.run(bench, "--shard", f"{number}/2") == 0, bench.said
        shutil.copytree(
            bench.folder / "shards" / f"{number}-of-2", tmp_path / "all", dirs_exist_ok=True
        )
    (merge,) = machines(tmp_path, "merge")
    assert host.run(merge, "merge", str(tmp_path / "all")) == 1, merge.said
    assert text_of(merge) == alone


def test_a_shard_that_died_is_named_and_can_run_again(host, alone, tmp_path):
    store = ("--store", str(tmp_path / "store"))
    first, second, merge = machines(tmp_path, "one", "two", "merge")
    assert host.run(first, "--shard", "1/2", *store) == 0
    pid = host.begin(second, "--shard", "2/2", *store)
    second.until(lambda: second.files("captures/*/*/*/*/*"), within=30)
    os.kill(pid, signal.SIGKILL)
    assert host.end() == -signal.SIGKILL
    assert host.run(merge, "merge", *store) == 2
    assert "1 shard of 2 left no result: 2/2" in merge.said
    assert "samebits matrix --shard 2/2" in merge.said
    assert not (merge.folder / "report").exists()
    assert host.run(second, "--shard", "2/2", *store) == 0, second.said
    assert host.run(merge, "merge", *store) == 1, merge.said
    assert text_of(merge) == alone


def test_shards_of_another_run_are_not_merged(host, tmp_path):
    store = ("--store", str(tmp_path / "store"))
    first, merge = machines(tmp_path, "one", "merge")
    assert host.run(first, "--shard", "1/1", *store) == 0
    assert host.run(merge, "merge", "--deep", *store) == 2
    assert "no shard of this matrix with these options" in merge.said
    assert host.run(merge, "merge") == 2
    assert "nothing to merge" in merge.said
    assert host.run(merge, "merge", "elsewhere") == 2
    assert "elsewhere is no folder" in merge.said
