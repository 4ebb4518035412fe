"""Real stacks for the tests that only they can serve; built once, where the checkout has its own."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from samebits.matrix.spec import StackSpec
from samebits.pipeline.order import Order
from samebits.pipeline.run import run_matrix
from samebits.questions.trainer.ask import PACKAGES
from samebits.stacks import probes
from samebits.stacks.build import StackBuilder
from samebits.stacks.environment import probe_environment
from samebits.stacks.installer import Installer
from samebits.stacks.packages import PackageBuilder
from samebits.stacks.places import stacks_folder
from samebits.terminal.progress import Plain

ROOT = Path(__file__).parents[2]
OLD, NEW = "4.48", "5.x"
OTHERS = (
    "relations",
    "save_load",
    "usage",
    "training",
    "arguments",
    "changes",
    "other_classes",
    "edits",
    "pipelines",
)
"""Questions that a test of something else leaves out, by their switches."""
WORK = ROOT / ".samebits" / "tests"
SHARED = {
    "stacks": stacks_folder(ROOT / ".samebits", os.environ),
    "locks": WORK / "locks",
    "changes": WORK / "changes",
}
"""Folders that the projects of tests share: no stack is built twice, and the sources of a release are
read once, which takes 20 s. The locks are not those of the checkout, where 5.x is the newest release."""


def share_stacks(work):
    """Link the stacks and the tests' locks into a work folder."""
    work.mkdir(parents=True, exist_ok=True)
    for name, folder in SHARED.items():
        folder.mkdir(parents=True, exist_ok=True)
        if not (work / name).exists():
            (work / name).symlink_to(folder)


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.stacks)


@pytest.fixture(scope="session", autouse=True)
def known_releases():
    """Let 5.x be the release that newest.txt names: a new one must not change a test's result.

    ``nox -s newest`` runs the tests on the newest one.
    """
    os.environ.setdefault("UV_CONSTRAINT", str(ROOT / "tests" / "newest.txt"))


def warm_script(tmp_path_factory, name, root):
    """Make a folder with a script that is a stack's process of a checkout, and shares imports."""
    folder = tmp_path_factory.mktemp(f"{name}-{os.getpid()}", numbered=False)
    usual = probe_environment(os.environ, needs_hub=False, modules_cache="")
    del usual["HF_MODULES_CACHE"]
    (folder / "usual.json").write_text(json.dumps(usual))
    script = folder / "stack.py"
    script.symlink_to(root / "tests" / "support" / "warm_stack.py")
    return script


@pytest.fixture(scope="session", autouse=True)
def warm(tmp_path_factory, known_releases):
    """Let the runs of this process share one import of each release, as tests/support/warm_stack.py does."""
    script = warm_script(tmp_path_factory, "warm", ROOT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probes, "STACK", script)
        yield script


@pytest.fixture(scope="session")
def run_script(build, warm, tmp_path_factory):
    """Return a function that runs a script, or ``-c`` code, in a release, and returns what it printed.

    A script that depends on what transformers asks as it is imported does not take part in the shared import.
    """
    modules = tmp_path_factory.mktemp("modules")
    env = probe_environment(os.environ, needs_hub=False, modules_cache=str(modules))

    def run(stack, *words, shared=True, **variables):
        command = [build(stack).python, *map(str, [warm, *words] if shared else words)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=env | variables, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


ONCE = """
import runpy, sys
from pathlib import Path
from samebits.stacks import probes

probes.STACK = Path(sys.argv.pop(1))
runpy.run_module("samebits", run_name="__main__", alter_sys=True)
"""
"""Runs samebits with another script as the process of a stack."""


def run_samebits(script, folder, *words, path=(ROOT,)):
    """Run samebits in a process of its own, where ``script`` is a stack's process."""
    share_stacks(folder / ".samebits")
    return subprocess.run(
        [sys.executable, "-c", ONCE, str(script), *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def build(known_releases):
    """Return a function that builds a release."""
    builder = StackBuilder(WORK, Installer(os.environ), stacks=SHARED["stacks"])
    return lambda name: builder.build(
        StackSpec(id=name, transformers=name, torch="2.13.0", python="3.11")
    )


@pytest.fixture(scope="session")
def stacks(build):
    return {name: build(name) for name in (OLD, NEW)}


@pytest.fixture(scope="session")
def beside(stacks):
    """Return the folder with packages beside a stack."""
    builder = PackageBuilder(ROOT / ".samebits", ROOT, Installer(os.environ))
    return lambda name, packages: builder.extend(stacks[name], "3.11", packages).folder


@pytest.fixture(scope="session")
def accelerate(beside):
    """Return the folder with accelerate beside a stack, which Trainer needs."""
    return lambda name: beside(name, PACKAGES)


@pytest.fixture(scope="session")
def run_in(stacks):
    """Run a matrix.yaml in its folder, with the stacks that are already built."""

    def run(folder, **options):
        share_stacks(folder / ".samebits")
        report, run.beside = run_of(folder, os.environ, **options)
        return report

    return run


def run_of(folder, environ, **options):
    """Run the matrix.yaml of a folder; return the report and what lies beside it."""
    with (folder / "progress.log").open("a") as log:
        order = Order(matrix=folder / "matrix.yaml", **options)
        return asyncio.run(
            run_matrix(order, environ, lambda total: Plain(log, total, time.monotonic))
        )


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    """The folder of the MATRIX of a file; a file that needs more has a fixture of its own."""
    made = tmp_path_factory.mktemp("matrix")
    (made / "matrix.yaml").write_text(request.module.MATRIX)
    return made


@pytest.fixture(scope="module")
def report(folder, run_in):
    """The report of the matrix.yaml of a file."""
    return run_in(folder)


@pytest.fixture(scope="module")
def cells(report):
    """(model, stack) -> its result."""
    return {(row.model, cell.cell.stack): cell for row in report.rows for cell in row.cells}


PLANTED = Path(__file__).parent / "planted"


def write_planted(folder, code, shapes, classes, *, planted=PLANTED, spread=0.4, **config):
    """Write a checkpoint with seeded weights for a model in planted/; ``classes``: Auto class -> its class."""
    folder.mkdir()
    shutil.copy(planted / f"{code}.py", folder)
    auto = {name: f"{code}.{model_class}" for name, model_class in classes.items()}
    *_, architecture = classes.values()
    fields = {"architectures": [architecture], "auto_map": auto} | config
    (folder / "config.json").write_text(json.dumps(fields))
    generator = np.random.default_rng(0)
    tensors = {n: generator.normal(0, spread, s).astype(np.float32) for n, s in shapes.items()}
    write_safetensors(folder / "model.safetensors", tensors)


SMALL = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 48}
SMALL |= {"num_hidden_layers": 2, "num_attention_heads": 4}
SMALL_LLAMA = SMALL | {"eos_token_id": None, "initializer_range": 0.25}
SAVE = """
import importlib, json, sys, torch
folder, code, autos, models = sys.argv[1], sys.argv[2], *map(json.loads, sys.argv[3:])
sys.path.insert(0, folder)
kinds = {name: getattr(importlib.import_module(code), name) for name in autos}
for name, (kind, fields) in models.items():
    torch.manual_seed(0)
    config_class = kinds[kind].config_class
    config = config_class(**fields)
    config.auto_map = {"AutoConfig": f"{code}.{config_class.__name__}"} | {
        autos[other]: f"{code}.{other}" for other in autos if kinds[other].config_class is config_class}
    kinds[kind](config).save_pretrained(f"{folder}/{name}")
"""
"""Writes models of custom code; those of one config class are in its auto_map, as checkpoints have it that serve several tasks."""


@pytest.fixture(scope="session")
def save_planted(run_script):
    """Return a function that saves models of a file of planted/ in a release, and writes matrix.yaml.

    ``autos``: class -> its Auto class. ``models``: name -> class and fields of its config, of which each gets a line
    behind ``matrix``.
    """

    def save(folder, code, stack, autos, models, matrix):
        shutil.copy(PLANTED / f"{code}.py", folder)
        run_script(stack, "-c", SAVE, folder, code, json.dumps(autos), json.dumps(models))
        lines = [matrix.strip()]
        for name in models:
            shutil.copy(PLANTED / f"{code}.py", folder / name)
            lines.append(f"  {name}: {{path: {name}, trust_remote_code: true}}")
        (folder / "matrix.yaml").write_text("\n".join(lines))

    return save


def write_safetensors(path, tensors, behind=None):
    """Write float32 arrays in the safetensors layout: length, JSON header, bytes.

    ``behind`` is how far behind a 64-byte boundary the first of them begins.
    """
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 if behind is None else (behind - 8 - len(text)) % 64)
    data = b"".join(array.tobytes() for array in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
    """Make a checkpoint of the custom model in planted/, with one defect or none."""
    folder = tmp_path_factory.mktemp("planted")

    def make(defect):
        made = folder / defect
        if made.exists():
            return made
        config = {"model_type": "planted", "vocab_size": 32, "hidden_size": 16}
        classes = {"AutoConfig": "PlantedConfig", "AutoModelForCausalLM": "PlantedForCausalLM"}
        shapes = {"embed.weight": (32, 16), "head.weight": (32, 16)}
        shapes |= {f"layers.{i}.proj.weight": (16, 16) for i in range(3)}
        settings = config | {"num_hidden_layers": 3, "defect": defect}
        write_planted(made, "modeling_planted", shapes, classes, **settings)
        return made

    return make
