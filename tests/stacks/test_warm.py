"""Processes that stay between runs: what a run gets of them, who may use them, and when they end."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from samebits.base.options import record_of
from samebits.cli import warm as command
from samebits.cli.command import main
from samebits.cli.parser import parsed
from samebits.stacks import probes, warm
from samebits.stacks.build import Stack
from samebits.stacks.system import SystemTorch
from samebits.text.terminal import PLAIN
from samebits_wire.places import STAMP

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="keepers need Linux"),
]

KEEPER = """
import json, os, signal, sys, time
from pathlib import Path

sys.path[0] = {probes!r}
import samebits_warm as warm

memory = Path(__file__).with_name("available")
warm._available = lambda: float(memory.read_text())


def become(order):
    text = sys.stdin.readline()
    if text.startswith("exit"):
        sys.exit(int(text.split()[1]))
    if text.startswith("signal"):
        os.kill(os.getpid(), int(text.split()[1]))
    if text.startswith("sleep"):
        Path("sleeps").write_text(str(os.getpid()))
        time.sleep(60)
    if text.startswith("raise"):
        raise ValueError("of the run")
    facts = {{"keeper": os.getppid(), "variable": os.environ.get("OF_THE_RUN"), "folder": os.getcwd()}}
    Path(order["learned"]).write_text("learned")
    print(json.dumps(facts))


def learn(path):
    if path.exists():
        (path.parent / "learned.txt").write_text(path.read_text())
        path.unlink()


if sys.argv[1] == "--keep":
    warm.Keeper(Path(sys.argv[2]), become).serve(learn)
else:
    place, seconds = Path(sys.argv[1]), float(sys.argv[2])
    with warm.connected(place, [sys.executable, __file__, "--keep", str(place)]) as keeper:
        order = {{"variables": dict(os.environ), "folder": os.getcwd(), "seconds": seconds}}
        warm.end_as(warm.handed_over(keeper, order))
"""
"""A keeper whose runs answer one line; the file *available* says how much of the machine's memory is."""


class Keepers:
    """Starts runs at places of one folder."""

    def __init__(self, folder):
        self.folder = folder
        self.script = folder / "keeper.py"
        self.script.write_text(KEEPER.format(probes=str(probes.PROBES)))
        self.available(0.5)

    def available(self, share):
        (self.folder / "available.new").write_text(str(share))
        (self.folder / "available.new").replace(self.folder / "available")

    def start(self, line, *, name="a", seconds=30, **variables):
        place = self.folder / f"{name}{warm.SUFFIX}"
        process = subprocess.Popen(
            [sys.executable, self.script, place, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | variables,
            cwd=self.folder,
        )
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        return process

    def run(self, line, **options):
        out, err = self.start(line, **options).communicate(timeout=30)
        return out, err

    def facts(self):
        return warm.keepers(self.folder)


@pytest.fixture
def short():
    """Return a folder whose path is short enough for a socket, as those of tests are not; it ends with its keepers."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        for keeper in warm.keepers(Path(name)):
            os.kill(keeper.pid, signal.SIGKILL)


@pytest.fixture
def keepers(short):
    return Keepers(short)


def until(holds):
    """Wait until something holds, for at most 20 s."""
    deadline = time.monotonic() + 20
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_a_run_has_its_own_streams_variables_and_folder(keepers):
    out, err = keepers.run("say", OF_THE_RUN="1")
    answer = json.loads(out)
    assert (answer["variable"], answer["folder"], err) == ("1", str(keepers.folder), "")
    assert json.loads(keepers.run("say")[0])["variable"] is None


def test_runs_are_forks_of_one_keeper_which_learns_from_them(keepers):
    first, second = (json.loads(keepers.run("say")[0])["keeper"] for _ in range(2))
    (keeper,) = keepers.facts()
    assert first == second == keeper.pid
    assert (keeper.runs, keeper.running) == (2, 0)
    assert keeper.memory > 0
    assert (keepers.folder / "learned.txt").read_text() == "learned"
    assert not list(keepers.folder.glob("*.learned"))


@pytest.mark.parametrize(
    ("line", "code"), [("exit 3", 3), (f"signal {signal.SIGSEGV:d}", -signal.SIGSEGV), ("raise", 1)]
)
def test_the_process_that_stands_for_a_run_ends_as_the_run_ends(keepers, line, code):
    process = keepers.start(line)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert ("ValueError: of the run" in err) == (line == "raise")


def test_a_run_ends_with_the_process_that_stands_for_it(keepers):
    process = keepers.start("sleep")
    pid = int(until(lambda: _content(keepers.folder / "sleeps")))
    (keeper,) = keepers.facts()
    assert (keeper.running, keeper.unused) == (1, 0.0)
    process.kill()
    process.communicate(timeout=30)
    until(lambda: not _is_there(pid))
    until(lambda: [keeper.running for keeper in keepers.facts()] == [0])


def test_a_run_whose_keeper_is_killed_ends_as_killed(keepers):
    process = keepers.start("sleep")
    until(lambda: _content(keepers.folder / "sleeps"))
    (keeper,) = keepers.facts()
    os.kill(keeper.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL


def test_a_keeper_ends_when_it_is_not_used(keepers):
    keepers.run("say", seconds=0.2)
    until(lambda: not keepers.facts())
    assert not list(keepers.folder.glob(f"*{warm.SUFFIX}"))


def test_a_keeper_that_is_asked_to_ends_after_its_run(keepers):
    process = keepers.start("say")
    process.communicate(timeout=30)
    busy = keepers.start("sleep")
    pid = int(until(lambda: _content(keepers.folder / "sleeps")))
    assert len(warm.keepers(keepers.folder, end=True)) == 1
    assert _is_there(pid)
    busy.kill()
    busy.communicate(timeout=30)
    until(lambda: not keepers.facts())


def test_what_a_killed_keeper_left_is_removed_and_the_next_run_starts_another(keepers):
    first = json.loads(keepers.run("say")[0])["keeper"]
    os.kill(first, signal.SIGKILL)
    until(lambda: not _is_there(first))
    assert json.loads(keepers.run("say")[0])["keeper"] != first
    (keeper,) = keepers.facts()
    os.kill(keeper.pid, signal.SIGKILL)
    until(lambda: not keepers.facts() and not list(keepers.folder.glob(f"*{warm.SUFFIX}")))


def test_a_keeper_that_cannot_import_says_so_in_the_log_of_the_run(keepers):
    keepers.script.write_text(f"import no_such_package\n{keepers.script.read_text()}")
    script = keepers.script.with_name("connects.py")
    script.write_text(keepers.script.read_text().replace("import no_such_package\n", ""))
    place = str(keepers.folder / "b.keeper")
    text = script.read_text().replace("__file__", repr(str(keepers.script)))
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, script, place, "9"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'no_such_package'" in done.stderr


def test_where_memory_is_short_the_one_used_least_recently_ends_first(keepers):
    older = json.loads(keepers.run("say", name="older")[0])["keeper"]
    newer = json.loads(keepers.run("say", name="newer")[0])["keeper"]
    os.utime(keepers.folder / "older.keeper", (1, 1))
    busy = keepers.start("sleep", name="newer")
    until(lambda: _content(keepers.folder / "sleeps"))
    keepers.available(0.01)
    until(lambda: not _is_there(older))
    assert _is_there(newer)
    busy.kill()
    busy.communicate(timeout=30)
    until(lambda: not _is_there(newer))


def test_a_machine_with_memory_keeps_them(keepers):
    keepers.run("say")
    time.sleep(1.5)
    (keeper,) = warm.keepers(keepers.folder, end=True)
    assert keeper.unused > 1
    until(lambda: not _is_there(keeper.pid))


def _content(path):
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


def _is_there(pid):
    """Return True if a process exists and has not ended; a killed one may wait for its parent."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


@pytest.fixture
def stack(tmp_path):
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / STAMP).write_text("{}")
    return Stack(
        id="5.x",
        python=str(environment / "bin" / "python"),
        lock="",
        lock_digest="0",
        packages={"transformers": "5.24.0"},
        architectures=(),
    )


VARIABLES = {"PATH": "/bin", "HF_MODULES_CACHE": "a", "HF_HUB_OFFLINE": "1"}


def test_a_place_is_that_of_the_same_environment_probes_and_variables(tmp_path, stack):
    place = warm.place_of(tmp_path, stack, "probes", VARIABLES)
    assert place == warm.place_of(tmp_path, stack, "probes", VARIABLES | {"HF_MODULES_CACHE": "b"})
    other = [
        warm.place_of(tmp_path, stack, "other probes", VARIABLES),
        warm.place_of(tmp_path, stack, "probes", VARIABLES | {"PATH": "/usr/bin"}),
        warm.place_of(tmp_path, stack, "probes", VARIABLES | {"SAMEBITS_PACKAGES": "/beside"}),
    ]
    built_again = Path(stack.python).parents[1] / STAMP
    os.utime(built_again, (1, 1))
    other.append(warm.place_of(tmp_path, stack, "probes", VARIABLES))
    assert len({place, *other}) == 5


def test_projects_that_link_to_an_environment_share_its_place(tmp_path, stack):
    place = warm.place_of(tmp_path, stack, "probes", VARIABLES)
    (tmp_path / "link").symlink_to(Path(stack.python).parents[1])
    linked = stack.model_copy(update={"python": str(tmp_path / "link" / "bin" / "python")})
    assert warm.place_of(tmp_path, linked, "probes", VARIABLES) == place


def test_limits_that_a_run_inherits_have_places_of_their_own(tmp_path, stack):
    place = warm.place_of(tmp_path, stack, "probes", VARIABLES)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert warm.place_of(tmp_path, stack, "probes", VARIABLES) != place
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    before = os.umask(0o022)
    os.umask(before ^ 0o070)
    try:
        assert warm.place_of(tmp_path, stack, "probes", VARIABLES) != place
    finally:
        os.umask(before)


def test_what_the_user_can_change_is_not_kept(stack):
    assert warm.can_stay(stack)
    assert not warm.can_stay(stack.model_copy(update={"source": "/checkout"}))
    system = SystemTorch.model_construct(python="/usr/bin/python3")
    assert not warm.can_stay(stack.model_copy(update={"system": system}))


def test_the_folder_of_sockets_is_the_users_alone(short):
    folder = warm.home({"XDG_RUNTIME_DIR": str(short)})
    assert folder == short / "samebits"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o750)
    assert warm.home({"XDG_RUNTIME_DIR": str(short)}) is None


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "samebits").symlink_to(tmp_path / "other")
    assert warm.home({"XDG_RUNTIME_DIR": str(tmp_path)}) is None


def test_a_path_too_long_for_a_socket_keeps_nothing(tmp_path):
    long = tmp_path / ("x" * 90)
    long.mkdir()
    assert warm.home({"XDG_RUNTIME_DIR": str(long)}) is None


def test_the_command_lists_them_and_ends_them(keepers, capsys):
    runtime = keepers.folder / "runtime"
    environ = {"XDG_RUNTIME_DIR": str(runtime)}
    runtime.mkdir()
    assert main(["warm"], environ) == 0
    assert command.NOTHING in capsys.readouterr().out
    inside = Keepers(warm.home(environ))
    inside.run("say", seconds=120)
    assert main(["warm"], environ) == 0
    shown = capsys.readouterr().out
    assert "ends in 2 min" in shown
    assert Path(sys.prefix).name in shown
    assert main(["warm", "--end"], environ) == 0
    assert "Ended 1 environment, which held " in capsys.readouterr().out
    until(lambda: not inside.facts())


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "1e9"])
def test_minutes_are_a_positive_number(text, capsys):
    with pytest.raises(SystemExit):
        parsed(["matrix", "--warm", text], PLAIN)
    assert "is no number of minutes: write one such as 10" in capsys.readouterr().err


def test_the_option_is_that_of_the_order():
    options = parsed(["warm", "--end"], PLAIN)
    assert record_of(command.WarmOptions, options).end
