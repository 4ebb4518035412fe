"""What a task on a cluster asks for follows from its cells: threads, GPUs, and the size of checkpoints."""

import pytest

from samebits.matrix import load
from samebits.matrix.plan import Selection, plan
from samebits.pipeline.resources import IMPORTS, Resources, of_cells, unmet

GIB = 1 << 30


def asked(tmp_path, models, jobs=1):
    path = tmp_path / "matrix.yaml"
    path.write_text(f'environments: ["4.57"]\nmodels: {{{models}}}\n')
    matrix = load.load(path)
    return of_cells(matrix, plan(matrix, Selection()).cells, jobs)


@pytest.fixture
def large(tmp_path):
    """A checkpoint of 8 GiB, whose file is sparse."""
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(8 * GIB - 2)
    return folder


def test_a_recipe_asks_for_cpus_only(tmp_path):
    assert asked(tmp_path, "m: {build: llama}", 3) == Resources(3, 0)
    assert asked(tmp_path, "m: {build: llama, threads: 6}").cpus == 6


@pytest.mark.parametrize(("dtype", "times"), [("bfloat16", 2), ("float32", 4), ("float64", 8)])
def test_memory_is_the_checkpoint_as_it_is_loaded_twice(tmp_path, large, dtype, times):
    need = asked(tmp_path, f"m: {{path: large, dtypes: [{dtype}]}}")
    assert need.memory == IMPORTS + times * 8 * GIB
    assert need.cpus == 4  # threads of a large model on a CPU
    assert asked(tmp_path, f"m: {{path: large, dtypes: [{dtype}]}}", 2).memory == 2 * need.memory


def test_a_task_asks_for_the_largest_of_its_models_and_not_for_their_sum(tmp_path, large):
    both = "s: {build: llama}, m: {path: large, dtypes: [bfloat16]}"
    assert asked(tmp_path, both) == asked(tmp_path, "m: {path: large, dtypes: [bfloat16]}")


@pytest.mark.parametrize(
    ("device", "gpus"), [("cpu", 0), ("cuda", 1), ("cuda:1", 2), ("xpu", 1), ("mps", 0)]
)
def test_a_device_is_a_resource_of_ray(tmp_path, device, gpus):
    need = asked(tmp_path, f'm: {{build: llama, devices: ["{device}"]}}')
    options = need.options()
    assert options["num_gpus"] == gpus
    assert options["memory"] is None


def test_a_model_on_a_gpu_has_one_thread(tmp_path, large):
    assert asked(tmp_path, "m: {path: large, devices: [cuda]}").cpus == 1


def test_what_some_machine_has_is_not_missing():
    machines = [{"CPU": 2, "memory": 8 * GIB}, {"CPU": 8, "memory": 4 * GIB, "GPU": 1}]
    assert unmet([Resources(8, 0, 1), Resources(2, 8 * GIB)], machines) == []
    assert unmet([Resources(9, 0)] * 2, machines) == [
        "a task needs 9 CPU, which no machine of the cluster has now"
    ]
