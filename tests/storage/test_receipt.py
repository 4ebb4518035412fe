"""Tests that a receipt is served only if a run would print the same; each change is tried."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from samebits import cli
from samebits.base.workfolder import WORK
from samebits.stacks.places import LOCK_AGE
from samebits.storage import receipt
from samebits.storage.receipt import lookup
from samebits_wire.seal import opened, sealed
from tests.support.sample_report import STACKS, sample_report

ROOT = Path(__file__).parents[2]
RECEIPTS = Path(WORK, receipt.FOLDER)
MATRIX = 'environments: ["4.48", "5.x"]\nmodels: {llama: {build: llama}}\n'
ENVIRON = {"HOME": "/h", "HF_TOKEN": "secret"}
LOCKS = {f"locks/{stack}.txt": "numpy==2\n" for stack in STACKS}


class Run:
    """A fake of run_matrix that uses a capture, a checkpoint and a trace that does not exist."""

    def __init__(self, folder):
        self.folder = folder
        self.unrepeatable = ()
        self.ran = 0

    async def __call__(self, order, environ, progress, dependencies):
        self.ran += 1
        dependencies.file(self.folder / "work" / "a.json")
        dependencies.file(self.folder / "work" / "never.json")
        dependencies.folder(self.folder / "checkpoint")
        for reason in self.unrepeatable:
            dependencies.mark_unrepeatable(reason)
        digest = receipt.digest_of_file(order.matrix)
        return sample_report().model_copy(update={"matrix_digest": digest}), LOCKS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    for name in ("work/a.json", "checkpoint/model.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("bytes")
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch):
    made = Run(folder)
    monkeypatch.setattr("samebits.cli.matrix.run_matrix", made)
    return made


def matrix(*options):
    return cli.run(["matrix", *options], ENVIRON)


def test_the_same_again_says_the_same(run):
    code, lines = matrix()
    repeated = lookup(["matrix"], ENVIRON)
    assert (repeated.code, repeated.lines[1:]) == (code, lines)
    assert repeated.lines[0].startswith(
        f"nothing changed since the run of {sample_report().started}"
    )


def test_a_receipt_that_is_served_is_in_use(run, folder):
    matrix()
    (path,) = (folder / RECEIPTS).iterdir()
    os.utime(path, (0, 0))
    assert lookup(["matrix"], ENVIRON) is not None
    assert path.stat().st_mtime > 0


def test_a_receipt_holds_no_token(run, folder):
    matrix()
    (path,) = (folder / RECEIPTS).iterdir()
    assert "secret" not in path.read_text()


def rewrite(path):
    """Change bytes and restore the mtime, as a tool that keeps times does."""
    before = path.stat()
    path.write_text(path.read_text()[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def page(folder):
    return next((folder / "reports" / "latest" / "models").glob("*.md"))


STALE = {
    "a capture was written again": lambda f: rewrite(f / "work" / "a.json"),
    "a capture is gone": lambda f: (f / "work" / "a.json").unlink(),
    "a file that was missing came": lambda f: (f / "work" / "never.json").write_text(""),
    "a local checkpoint changed": lambda f: rewrite(f / "checkpoint" / "model.safetensors"),
    "a local checkpoint has one more": lambda f: (f / "checkpoint" / "code.py").write_text(""),
    "the matrix changed": lambda f: (f / "matrix.yaml").write_text(f"{MATRIX}# and more\n"),
    "the matrix is gone": lambda f: (f / "matrix.yaml").unlink(),
    "a page was edited": lambda f: page(f).write_text("mine"),
    "a page was deleted": lambda f: page(f).unlink(),
    "the report was edited": lambda f: rewrite(f / "reports/latest/report.md"),
    "report.json is gone": lambda f: (f / "reports/latest/report.json").unlink(),
    "a lock was edited": lambda f: rewrite(f / "reports/latest/locks/4.48.txt"),
    "the report is gone": lambda f: shutil.rmtree(f / "reports"),
}


@pytest.mark.parametrize("stale", STALE)
def test_what_changed_on_disk_is_noticed(run, folder, stale):
    matrix()
    assert lookup(["matrix"], ENVIRON) is not None
    STALE[stale](folder)
    assert lookup(["matrix"], ENVIRON) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["matrix", "--models", "llama"],
        ["matrix", "--fresh"],
        ["matrix", "--reports", "elsewhere"],
        ["matrix", "--causes"],
        ["matrix", "--quick"],
        ["matrix", "--deep"],
        ["probe"],
        [],
    ],
    ids=" ".join,
)
def test_another_question_is_not_answered(run, arguments):
    matrix()
    assert lookup(arguments, ENVIRON) is None


def test_another_environment_is_not_answered(run):
    matrix()
    assert lookup(["matrix"], {"HOME": "/h"}) is not None, "the token is no part of the question"
    for name in ("CUDA_VISIBLE_DEVICES", "HF_HOME", "UV_FIND_LINKS"):
        assert lookup(["matrix"], ENVIRON | {name: "x"}) is None


@pytest.mark.parametrize("what", ["source_digest", "machine_fingerprint"])
def test_another_source_or_machine_is_not_answered(run, monkeypatch, what):
    matrix()
    monkeypatch.setattr(receipt, what, lambda: "another")
    assert lookup(["matrix"], ENVIRON) is None


def test_another_folder_is_not_answered(run, folder, monkeypatch):
    matrix("--matrix", str(folder / "matrix.yaml"))
    arguments = ["matrix", "--matrix", str(folder / "matrix.yaml")]
    assert lookup(arguments, ENVIRON) is not None
    (folder / "other").mkdir()
    monkeypatch.chdir(folder / "other")
    assert lookup(arguments, ENVIRON) is None


def test_another_run_into_the_same_folder_ends_it(run, monkeypatch):
    matrix()

    async def another_run(order, environ, progress, dependencies):
        return sample_report().model_copy(update={"command": "other"}), LOCKS

    monkeypatch.setattr("samebits.cli.matrix.run_matrix", another_run)
    matrix("--models", "llama")
    assert lookup(["matrix"], ENVIRON) is None


@pytest.mark.parametrize("option", ["--fresh", "--upgrade"])
def test_a_run_that_kept_nothing_leaves_none(run, folder, option):
    matrix(option)
    assert lookup(["matrix", option], ENVIRON) is None
    assert not (folder / RECEIPTS).exists()


def test_a_run_that_may_end_otherwise_is_never_served(run, folder):
    run.unrepeatable = ["hub org/name has no pinned revision, so its results are not reused"]
    matrix()
    assert lookup(["matrix"], ENVIRON) is None
    (path,) = (folder / RECEIPTS).iterdir()
    assert json.loads(path.read_text())["unrepeatable"] == run.unrepeatable


def test_a_page_of_the_user_beside_it_changes_nothing(run, folder):
    matrix()
    (page(folder).parent / "mine.md").write_text("mine")
    assert lookup(["matrix"], ENVIRON) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"format": "x"}'])
def test_a_torn_receipt_is_none(run, folder, text):
    matrix()
    (path,) = (folder / RECEIPTS).iterdir()
    for content in (text, *([sealed(text)] if text.endswith("}") else [])):
        path.write_text(content)
        assert lookup(["matrix"], ENVIRON) is None


def test_a_receipt_of_another_format_is_none(run, folder):
    matrix()
    (path,) = (folder / RECEIPTS).iterdir()
    data = json.loads(opened(path.read_bytes()))
    assert lookup(["matrix"], ENVIRON) is not None
    path.write_text(sealed(json.dumps(data | {"format_version": receipt.FORMAT_VERSION + 1})))
    assert lookup(["matrix"], ENVIRON) is None


def test_the_source_is_all_that_computes(tmp_path, monkeypatch):
    """The content of every module and every probe is part of the digest."""
    for name in ("samebits/a.py", "samebits/findings/b.py", "probes/probe_c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    folders = (tmp_path / "samebits", tmp_path / "probes")
    monkeypatch.setattr(receipt, "_SOURCES", folders)
    digest = receipt.source_digest.__wrapped__
    digests = {digest()}
    for name in ("samebits/a.py", "samebits/findings/b.py", "probes/probe_c.py"):
        (tmp_path / name).write_text("x = 2\n")
        digests.add(digest())
    (tmp_path / "samebits" / "__pycache__").mkdir()
    (tmp_path / "samebits" / "__pycache__" / "a.pyc").write_text("")
    digests.add(digest())
    assert len(digests) == 4
    monkeypatch.setattr(receipt, "_packages", lambda: ["numpy-99.dist-info"])
    assert digest() not in digests


def test_sources_are_the_whole_package_the_probes_and_the_pages():
    package, probes, pages = receipt._SOURCES
    assert (package / "__main__.py").samefile(ROOT / "samebits" / "__main__.py")
    assert (probes / "stack.py").samefile(ROOT / "probes" / "stack.py")
    assert (pages / "SB101.md").samefile(ROOT / "docs" / "findings" / "SB101.md")


@pytest.mark.processes
def test_the_command_prints_it_without_importing_what_a_run_needs(run, folder):
    """Run ``python -m samebits`` in a separate process."""
    code = (
        "import sys, atexit; sys.argv = ['samebits', 'matrix']\n"
        "heavy = {'pydantic', 'numpy', 'yaml', 'rich', 'asyncio'}\n"
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules))))\n"
        "from samebits import __main__; __main__.main()"
    )
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/h"}

    def samebits():
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    exit_code, lines = cli.run(["matrix"], environ)
    receipts = (folder / RECEIPTS).iterdir()
    # another process has other folders on its path, so its command has another digest
    script = "import sys, os; from samebits.storage import receipt as r; print(r._name(['matrix'], os.environ))"
    printed = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True
    )
    next(receipts).rename(folder / RECEIPTS / printed.stdout.strip())
    done = samebits()
    assert done.returncode == exit_code, done.stderr
    assert done.stdout.splitlines()[1:-1] == lines
    assert done.stdout.splitlines()[-1] == "[]"


class Check(Run):
    """A fake of run_matrix for ``samebits check``, whose locks lie in the cache folder."""

    async def __call__(self, order, environ, progress, dependencies, matrix):
        report = await super().__call__(
            order.model_copy(update={"matrix": Path("matrix.yaml")}),
            environ,
            progress,
            dependencies,
        )
        lock = order.work_folder / "locks" / "5.x-0.txt"
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        dependencies.file(lock)
        return report


@pytest.fixture
def check(folder, monkeypatch):
    """Return a function that checks a model with options; it also looks for a receipt first, as the program does."""
    made = Check(folder)
    monkeypatch.setattr("samebits.cli.check.run_matrix", made)
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "llama", "transformers_version": "4.48.0"}')

    def run(*options):
        words, environ = (
            ["check", "./model", "--to", "5.2", *options],
            ENVIRON | {"SAMEBITS_CACHE": "cache"},
        )
        stored = lookup(words, environ)
        if stored is None:
            code, lines = cli.run(words, environ)
            return receipt.Answer(code, lines)
        return stored

    run.ran = lambda: made.ran
    return run


def test_the_same_check_again_says_the_same(check, folder):
    first = check()
    again = check()
    assert check.ran() == 1
    assert (again.code, again.lines[1:]) == (first.code, first.lines)
    rewrite(folder / "checkpoint" / "model.safetensors")
    check()
    assert check.ran() == 2


def test_a_check_looks_for_newer_releases_when_its_locks_are_old(check, folder, monkeypatch):
    check()
    (lock,) = (folder / "cache" / "checks" / "locks").iterdir()
    old = lock.stat().st_mtime + LOCK_AGE
    monkeypatch.setattr("samebits.storage.receipt.time.time", lambda: old - 60)
    check()
    assert check.ran() == 1
    monkeypatch.setattr("samebits.storage.receipt.time.time", lambda: old + 1)
    check()
    assert check.ran() == 2


@pytest.mark.parametrize(
    "options", [("--fresh",), ("--environment-package", "pillow"), ("--format", "github")]
)
def test_a_check_that_uses_what_no_receipt_watches_runs_again(check, options):
    check(*options)
    check(*options)
    assert check.ran() == 2


def test_a_check_for_a_terminal_of_another_width_prints_anew(check, monkeypatch):
    monkeypatch.setattr("samebits.storage.receipt._width", lambda: 80)
    check()
    monkeypatch.setattr("samebits.storage.receipt._width", lambda: 120)
    check()
    assert check.ran() == 2
