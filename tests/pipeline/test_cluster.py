"""A run on a cluster: its tasks, and what is said if there is no cluster. tests/real has a real one."""

import asyncio
import sys

import pytest

from samebits.matrix.plan import Selection
from samebits.pipeline import cluster, run
from samebits.pipeline.order import Order
from samebits.pipeline.resources import Resources
from tests.pipeline.test_shards import PLAN
from tests.support.scheduler_bench import RecordedProgress

GIB = 1 << 30


def task(*words, cpus=1, memory=0, gpus=0):
    return cluster.Task(words, Resources(cpus, memory, gpus))


class Ray:
    """Ray as far as it is used: tasks end one by one, and some of them fail."""

    def __init__(self, failing=(), **machine):
        self.failing = failing
        self.machine = {"CPU": 8.0, "memory": 64.0 * GIB} | machine
        self.options = []
        self.ran = []
        self.connected = []

    def is_initialized(self):
        return False

    def init(self, **fields):
        if fields["address"] == "ray://nobody:1":
            raise ConnectionError("no answer of /home/user/x")
        self.connected.append(fields)

    def nodes(self):
        return [
            {"Alive": False, "Resources": {"GPU": 8.0}},
            {"Alive": True, "Resources": self.machine},
        ]

    def shutdown(self):
        self.connected.append("end")

    def remote(self, function):
        ray = self

        class Remote:
            def options(self, **options):
                ray.options.append(options)
                return self

            def remote(self, words, folder):
                ray.ran.append((words, folder))
                return len(ray.ran)

        return Remote()

    def wait(self, references, num_returns, timeout):
        return references[:1], references[1:]

    def get(self, reference):
        if reference in self.failing:
            raise RuntimeError("traceback\nRuntimeError: samebits ended with 2")


def test_a_task_has_one_stack_and_so_many_cells(monkeypatch):
    assert cluster.n_tasks(PLAN) == 3
    monkeypatch.setattr(cluster, "CELLS_PER_TASK", 2)
    assert cluster.n_tasks(PLAN) == 6


def test_tasks_are_retried_and_those_that_fail_for_good_are_named(tmp_path, monkeypatch):
    ray, said = Ray(failing=(2,)), []
    monkeypatch.setitem(sys.modules, "ray", ray)
    tasks = [task("a", cpus=3), task("b")]
    failures = cluster.run("local", tasks, tmp_path, said.append)
    assert ray.ran == [(["a"], str(tmp_path)), (["b"], str(tmp_path))]
    first, second = ray.options
    assert (first["max_retries"], first["retry_exceptions"]) == (3, True)
    assert (first["num_cpus"], second["num_cpus"]) == (3, 1)
    assert said == ["1 of 2 tasks have ended", "2 of 2 tasks have ended"]
    (failure,) = failures
    assert failure.startswith("task 2 of 2 failed on the cluster")
    assert failure.endswith("RuntimeError: samebits ended with 2")
    assert ray.connected[-1] == "end"


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(cluster.ClusterError, match=r"samebits\[ray\]"):
        cluster.run("local", [task("a")], tmp_path, print)


def test_a_cluster_that_does_not_answer_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", Ray())
    with pytest.raises(cluster.ClusterError, match="ray://nobody:1 cannot be reached: no answer"):
        cluster.run("ray://nobody:1", [task("a")], tmp_path, print)


@pytest.fixture
def matrix(tmp_path):
    path = tmp_path / "matrix.yaml"
    path.write_text(
        'environments: ["4.57", "5.2"]\nmodels: {llama: {build: llama}, gpt2: {build: gpt2}}\n'
    )
    return path


def ordered(matrix, **fields):
    order = Order(matrix=matrix, **fields)
    return asyncio.run(run.run_on_cluster(order, {}, lambda total: RecordedProgress()))


def test_a_task_is_a_shard_of_the_same_run(matrix, monkeypatch):
    ray = Ray()
    monkeypatch.setitem(sys.modules, "ray", ray)
    selection = Selection.parse(models="llama")
    order, notes = ordered(
        matrix, on="auto", store="s3://b", jobs=4, selection=selection, level="deep"
    )
    common = ["matrix", "--matrix", str(matrix), "--models", "llama", "--deep"]
    common += ["--store", "s3://b", "--jobs", "4"]
    assert [words for words, _ in ray.ran] == [[*common, "--shard", f"{n}/2"] for n in (1, 2)]
    assert [options["num_cpus"] for options in ray.options] == [4, 4]
    assert [options["num_gpus"] for options in ray.options] == [0, 0]
    assert (order.store, notes) == ("s3://b", ())


def test_a_cluster_elsewhere_needs_a_store_and_a_local_one_has_its_own(matrix, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", Ray())
    with pytest.raises(cluster.ClusterError, match="add --store"):
        ordered(matrix, on="auto")
    order, _ = ordered(matrix, on="local")
    assert order.store == str(matrix.parent / ".samebits" / "cluster")


def test_a_local_cluster_is_never_asked_for_more_than_it_has(tmp_path, monkeypatch):
    ray, said = Ray(), []
    monkeypatch.setitem(sys.modules, "ray", ray)
    large = task("a", cpus=99, memory=900 * GIB, gpus=2)
    assert cluster.run("local", [large], tmp_path, said.append) == []
    (options,) = ray.options
    assert (options["num_cpus"], options["num_gpus"], options["memory"]) == (8, 0, 64 * GIB)
    assert said == ["1 of 1 tasks have ended"]


def test_what_a_cluster_lacks_now_is_said_and_asked_for(tmp_path, monkeypatch):
    ray, said = Ray(), []
    monkeypatch.setitem(sys.modules, "ray", ray)
    cluster.run("auto", [task("a", memory=900 * GIB, gpus=1)], tmp_path, said.append)
    (options,) = ray.options
    assert (options["num_gpus"], options["memory"]) == (1, 900 * GIB)
    assert said[:-1] == [
        "a task needs 900 GiB of memory, which no machine of the cluster has now",
        "a task needs 1 GPU, which no machine of the cluster has now",
    ]
