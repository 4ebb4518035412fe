"""Real models that do harm, and checkpoints that are broken, beside healthy ones in two releases.

What tests/faults/test_faults.py shows of processes holds with torch in them, too; and what transformers
does with each broken file is known of both releases and not guessed.
"""

import json
import os
import pickle
import re
import shutil
import socket
from pathlib import Path
from unittest import mock

import pytest

from samebits.pipeline.early import EarlyError
from tests.real.conftest import NEW, OLD
from tests.support.partial import without_seconds

FAULTS = {
    "segfault": "import ctypes; ctypes.string_at(0)",
    "hang": "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)",
    "os-exit": "import os; os._exit(0)",
    "sys-exit": "import sys; sys.exit('enough of this')",
    "memory": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "allocates": "torch.empty(1 << 50)",
    "prints": "import os; print('x' * (1 << 23)); print('the last words', flush=True); os._exit(3)",
    "connects": "import socket; socket.create_connection(('127.0.0.1', PORT))",
    "asks": "import socket; socket.getaddrinfo('huggingface.co', 443)",
    "fills-the-disk": (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))"
    ),
    "changes-everything": (
        "import os, random; torch.set_default_dtype(torch.float64); torch.manual_seed(99); "
        "torch.tanh = torch.sin; torch.nn.Linear.forward = lambda self, x: x; os.chdir('/'); "
        "os.environ['HF_HUB_OFFLINE'] = '0'; torch.set_num_threads(3); random.seed(1)"
    ),
}
"""What a model's forward does before anything else."""

REASONS = {
    "segfault": "killed by signal 11 (SIGSEGV)",
    "os-exit": "the probe ended before it wrote it",
    "sys-exit": "exited with 1: SystemExit: enough of this",
    "prints": "exited with 3",
    "connects": "this process has none",
    "asks": "this process has none",
}


UNFINISHED = {
    "hang": "no progress for N s (it used no CPU: it waits for something",
    "memory": "killed by signal 9 (SIGKILL), most likely because memory ran out",
    "allocates": "can't allocate memory",
    "fills-the-disk": "File too large",
}
"""What is the clock's doing, or the machine's, and none of the release."""


def model(planted, folder, code=""):
    """Return a copy of the healthy model that runs ``code`` in each forward."""
    shutil.copytree(planted("none"), folder)
    if code:
        with (folder / "modeling_planted.py").open("a") as file:
            file.write(
                "\n_plain = PlantedForCausalLM.forward\n"
                "def _faulty(self, *args, **kwargs):\n"
                f"    {code}\n"
                "    return _plain(self, *args, **kwargs)\n"
                "PlantedForCausalLM.forward = _faulty\n"
            )
    return folder


def report_of(run_in, folder, models, more=""):
    lines = [f'environments: ["{OLD}", "{NEW}"]', "defaults:", "  greedy: 0", "  questions: []"]
    lines += [
        "  prompts: {short: {length: 9}}",
        "models:",
    ]
    for name, path in models.items():
        timeout = "timeout: 8, " if name == "hang" else ""
        lines.append(f"  {name}: {{path: '{path}', {timeout}trust_remote_code: true}}")
    folder.mkdir(exist_ok=True)
    (folder / "matrix.yaml").write_text("\n".join(lines) + "\n" + more)
    report = run_in(folder)
    return {(row.model, cell.cell.stack): cell for row in report.rows for cell in row.cells}


# what a model does


@pytest.fixture(scope="module")
def listener():
    """Listen where a model that gets through would be heard."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.fixture(scope="module")
def harmed(run_in, planted, listener, tmp_path_factory):
    root = tmp_path_factory.mktemp("harmed")
    port = str(listener.getsockname()[1])
    models = {"healthy": planted("none")}
    for name, code in FAULTS.items():
        models[name] = model(planted, root / name, code.replace("PORT", port))
    models["healthy-too"] = model(planted, root / "healthy-too")
    names = ", ".join(f'"{name}"' for name in FAULTS)
    more = f'exclude:\n  - {{model: [{names}], environment: "{OLD}", reason: "one release is enough"}}\n'
    return report_of(run_in, root / "run", models, more)


@pytest.mark.parametrize("name", REASONS)
def test_a_model_that_does_harm_fails_alone_and_says_why(harmed, name):
    cell = harmed[name, NEW]
    assert cell.verdict == "failed"
    assert REASONS[name] in f"{cell.failure.type}: {cell.failure.message}", cell.failure


@pytest.mark.parametrize("name", UNFINISHED)
def test_what_a_clock_or_the_memory_ended_is_not_finished(harmed, name):
    cell = harmed[name, NEW]
    assert cell.verdict == "not finished"
    assert UNFINISHED[name] in without_seconds(cell.unfinished.reason)


@pytest.mark.parametrize("name", ["healthy", "healthy-too"])
def test_the_models_beside_it_compute_what_they_always_do(harmed, name):
    assert harmed[name, NEW].verdict == "identical"


def test_nobody_was_called(harmed, listener):
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_no_process_is_left(harmed):
    assert "sleep 600" not in map(command, Path("/proc").glob("[0-9]*"))


def command(process):
    try:
        return (process / "cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


# what a checkpoint is made of


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch '{self.path}'",)


def header(path, change):
    """Change the JSON header of a safetensors file, and leave its length as it was said to be."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    said = json.loads(content[8 : 8 + size])
    change(said)
    text = json.dumps(said).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])


def truncated(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def flipped(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[9] ^= 0x40
    path.write_bytes(content)


def petabytes(folder):
    def change(said):
        said["head.weight"]["shape"] = [1 << 25, 1 << 25]
        start = said["head.weight"]["data_offsets"][0]
        said["head.weight"]["data_offsets"] = [start, start + (1 << 52)]

    header(folder / "model.safetensors", change)


def longest_header(folder):
    path = folder / "model.safetensors"
    path.write_bytes((1 << 62).to_bytes(8, "little") + path.read_bytes()[8:])


def absurd_config(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"hidden_size": 1 << 26, "vocab_size": 1 << 26}
    path.write_text(json.dumps(config))


def no_json(folder):
    (folder / "config.json").write_text("{'model_type': planted")


def no_mapping(folder):
    (folder / "config.json").write_text("[1, 2]")


def no_text(folder):
    (folder / "config.json").write_bytes(b'{"model_type": "\xff\xfe"}')


def index(folder, shard):
    content = folder / "model.safetensors"
    size = int.from_bytes(content.read_bytes()[:8], "little")
    names = json.loads(content.read_bytes()[8 : 8 + size]).keys() - {"__metadata__"}
    content.rename(folder.parent / f"{folder.name}.outside.safetensors")
    said = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, shard)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(said))


def no_shard(folder):
    index(folder, "model-00001-of-00002.safetensors")


def outside(folder):
    index(folder, f"../{folder.name}.outside.safetensors")


def loop(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("model.safetensors")


def evil_pickle(folder):
    (folder / "model.safetensors").unlink()
    content = pickle.dumps({"embed.weight": Evil(folder / "owned")}, protocol=2)
    (folder / "pytorch_model.bin").write_bytes(content)


BROKEN = {
    truncated: ("SafetensorError", "SafetensorError"),
    flipped: ("SafetensorError", "SafetensorError"),
    petabytes: ("SafetensorError", "SafetensorError"),
    longest_header: ("SafetensorError", "SafetensorError"),
    absurd_config: ("", ""),
    no_json: ("JSONDecodeError", "JSONDecodeError"),
    no_mapping: ("config.json holds no mapping but a list",) * 2,
    no_text: ("UnicodeDecodeError", "UnicodeDecodeError"),
    no_shard: ("model-00001-of-00002.safetensors",) * 2,
    outside: ("which is not in the model's folder",) * 2,
    loop: ("symbolic links", "symbolic links"),
    evil_pickle: ("is a pickle that is not weights alone",) * 2,
}
"""What is done to a healthy checkpoint, and what each release says then."""

ALLOCATES = (absurd_config, OLD)
"""Memory ends this one: up to 4.x the model is made before its tensors are compared."""


def name_of(breaks):
    return breaks.__name__.replace("_", "-")


@pytest.fixture(scope="module")
def folders(planted, run_script, tmp_path_factory):
    root = tmp_path_factory.mktemp("broken")
    made = {}
    for breaks in BROKEN:
        made[name_of(breaks)] = model(planted, root / name_of(breaks))
        breaks(made[name_of(breaks)])
    made["pickle"] = model(planted, root / "pickle")
    code = (
        "import sys, torch; from safetensors.torch import load_file; "
        "torch.save(load_file(sys.argv[1]), sys.argv[2])"
    )
    files = [str(made["pickle"] / name) for name in ("model.safetensors", "pytorch_model.bin")]
    run_script(NEW, "-c", code, *files)
    (made["pickle"] / "model.safetensors").unlink()
    for name, code in (("one", ""), ("two", "raise ValueError('the code of two')")):
        (root / name).mkdir()
        made[f"namesake-{name}"] = model(planted, root / name / "checkpoint-500", code)
    return made


@pytest.fixture(scope="module")
def broken(run_in, folders, tmp_path_factory):
    # a model of the hub, or a file that breaks during the run, passes the look at files before it
    with mock.patch("samebits.pipeline.early.refuse"):
        return report_of(run_in, tmp_path_factory.mktemp("broken-run"), folders)


STATIC = {"truncated", "flipped", "petabytes", "longest-header", "no-json", "no-mapping", "no-text"}
STATIC |= {"no-shard", "outside"}


def test_what_files_alone_show_ends_a_run_before_it_begins(run_in, folders, tmp_path):
    with pytest.raises(EarlyError) as caught:
        report_of(run_in, tmp_path / "run", folders)
    named = set(re.findall(r"^\S*matrix\.yaml:\d+: ([\w-]+): ", str(caught.value), re.MULTILINE))
    assert named == STATIC


@pytest.mark.parametrize(
    ("breaks", "stack"),
    [(breaks, stack) for breaks in BROKEN for stack in (OLD, NEW) if (breaks, stack) != ALLOCATES],
    ids=lambda given: given if isinstance(given, str) else name_of(given),
)
def test_a_broken_checkpoint_fails_its_cell_and_says_what_is_wrong(broken, breaks, stack):
    cell = broken[name_of(breaks), stack]
    assert cell.verdict == "failed", cell
    assert BROKEN[breaks][stack == NEW] in f"{cell.failure.type}: {cell.failure.message}"


def test_a_model_that_no_memory_can_hold_is_not_finished(broken):
    breaks, stack = ALLOCATES
    cell = broken[name_of(breaks), stack]
    assert cell.verdict == "not finished"
    assert "can't allocate memory" in without_seconds(cell.unfinished.reason)


def test_a_pickle_is_loaded_for_its_weights_and_runs_nothing(broken, folders):
    assert broken["pickle", NEW].verdict == "identical"
    assert not (folders["evil-pickle"] / "owned").exists()


def test_checkpoints_of_one_name_run_their_own_code(broken):
    """Up to 5.2 transformers copies the code of both to one folder, named checkpoint-500."""
    assert broken["namesake-one", NEW].verdict == "identical"
    for stack in (OLD, NEW):
        (failure,) = broken["namesake-two", stack].shared_failures
        assert failure.message == "the code of two"
