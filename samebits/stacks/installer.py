"""uv as a run uses it: what is resolved is kept in locks, what is installed is as its wheels are.

The environment of a stack and the packages of a model, or of Trainer, beside it are each a lock that is
resolved once (``lock``), and a folder that is filled once and then checked before each run (``kept``).
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from samebits.base.errors import SamebitsError
from samebits.base.filestate import Dependencies
from samebits.stacks import contents, uv
from samebits.stacks.lock import joined, package_of
from samebits_wire import seal
from samebits_wire.atomic import read_whole, replace

if TYPE_CHECKING:
    from samebits.records.record import Record

    R = TypeVar("R", bound=Record)

Run = Callable[[list[str], str, Mapping[str, str]], "subprocess.CompletedProcess[str]"]
"""Runs a command with text on its standard input in an environment, and waits."""
Failure = Callable[["subprocess.CompletedProcess[str]"], SamebitsError]
"""Makes the error of a command that failed."""
_TIME_TO_END = 1.0
"""Seconds that uv has to end after an interrupt."""


class Commands:
    """Runs commands and waits for them; every external program that builds a stack runs here."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def __call__(
        self, command: list[str], text: str, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and wait for it."""
        if self._ended:
            return subprocess.CompletedProcess(command, 1, "", "the run was ended")
        with subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process:
            self._running.add(process)
            try:
                output, errors = process.communicate(text)
            finally:
                self._running.discard(process)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def end(self) -> None:
        """End running commands and start no more, because the user ended the run."""
        self._ended = True
        running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(_TIME_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclass
class Installer:
    """Resolves locks and installs packages, with the settings of one run."""

    environ: Mapping[str, str]
    """Environment variables of the user, and from then on those of uv."""
    exclude_newer: str | None = None
    upgrade: bool = False
    max_age: float | None = None
    """Seconds after which a lock is resolved again, if it can be; None: never."""
    run: Run = field(default_factory=Commands)
    dependencies: Dependencies = field(default_factory=Dependencies)
    project: Path | None = None
    """Folder of matrix.yaml, whose settings of uv count; None if there is none."""
    deep: bool = False
    """True to compare the hashes of all installed files."""
    say: Callable[[str], None] = lambda _line: None

    def __post_init__(self) -> None:
        """Add what uv does not read itself."""
        self.environ = uv.environment(self.environ)

    @property
    def links(self) -> str:
        """Folders and addresses beside the index where packages are looked for."""
        return self.environ.get("UV_FIND_LINKS", "")

    def end(self) -> None:
        """End what runs."""
        if isinstance(self.run, Commands):
            self.run.end()

    def call(self, command: list[str], text: str, failure: Failure) -> str:
        """Return the output of a command. Raises what ``failure`` makes of one that failed."""
        process = self.run(command, text, self.environ)
        if process.returncode != 0:
            raise failure(process)
        return process.stdout

    def uv(self, *words: str, failure: Failure, text: str = "") -> str:
        """Return the output of uv."""
        return self.call(uv.command(self.project, *words), text, failure)

    def resolve(
        self,
        requirements: str,
        python: str,
        failure: Failure,
        *,
        overrides: str = "",
        constraints: str = "",
        preferred: str = "",
    ) -> str:
        """Return the versions that fit requirements, ``preferred`` ones wherever they do."""
        with tempfile.TemporaryDirectory(prefix="samebits-lock-") as folder:
            output = Path(folder) / "lock.txt"
            files = {
                "--override": (Path(folder) / "overrides.txt", overrides),
                "--constraint": (Path(folder) / "constraints.txt", constraints),
                "--output-file": (output, preferred),  # uv prefers the versions in it
            }
            words = []
            for option, (path, content) in files.items():
                path.write_text(content, "utf-8")
                words += [option, str(path)]
            self._compile(words, requirements, python, failure)
            return output.read_text("utf-8")

    def newest(self, requirement: str, python: str, failure: Failure) -> str:
        """Return the newest version of one package that fits, without what it needs."""
        return self._compile(["--no-deps"], requirement, python, failure)

    def hashed(
        self,
        requirements: str,
        python: str,
        failure: Failure,
        *,
        deps: bool = True,
        dated: bool = True,
    ) -> str:
        """Return a lock: what fits requirements, with the hashes of the wheels for this machine.

        Without ``deps`` the requirements are pins. Without ``dated`` these may be newer than what
        ``exclude_newer`` allows.
        """
        words = ["--format", "pylock.toml", *([] if deps else ["--no-deps"])]
        output = self._compile(words, requirements, python, failure, dated=dated)
        return joined(uv.locked_lines(output))

    def with_hashes(self, lock: str, pins: str, python: str, failure: Failure) -> str:
        """Return a lock in which the lines of ``pins`` have the hashes of the wheels."""
        if not pins:
            return lock
        hashed = self.hashed(pins, python, failure, deps=False)
        by_name = {package_of(line): line for line in hashed.splitlines()}
        return joined(by_name.get(package_of(line), line) for line in lock.splitlines())

    def _compile(
        self,
        words: Sequence[str],
        requirements: str,
        python: str,
        failure: Failure,
        *,
        dated: bool = True,
    ) -> str:
        command = ["pip", "compile", "-", "--quiet", "--no-header", "--no-annotate"]
        command += ["--python-version", python, *words]
        if dated and self.exclude_newer:
            command += ["--exclude-newer", self.exclude_newer]
        return self.uv(*command, text=requirements, failure=failure)

    def lock(
        self,
        path: Path,
        is_whole: Callable[[str], bool],
        resolve: Callable[[], str],
        *,
        serves: Callable[[SamebitsError], bool],
    ) -> str:
        """Return the lock of an earlier run, or a new one.

        An upgrade, or its age, makes it a new one. If that cannot be resolved, and ``serves`` says
        of the error that it is not about the packages, the old one is returned.
        """
        lock = None
        if not self.upgrade:
            self.dependencies.file(path)
            lock = kept_lock(path, is_whole)
            if lock is not None and not self._is_old(path):
                return lock
        try:
            new = resolve()
        except SamebitsError as error:
            if lock is not None and serves(error):
                return lock
            raise
        replace(path, seal.sealed_lines(new))
        self.dependencies.file(path)
        return new

    def _is_old(self, lock: Path) -> bool:
        return self.max_age is not None and time.time() - lock.stat().st_mtime > self.max_age

    def folder(self, parent: Path, name: str, digest: str, note: str) -> tuple[Path, str]:
        """Return the folder of an installation, missing or as it was installed, and its digest.

        ``note`` is what is said of a damaged one, with ``{}`` for what is damaged.
        """

        def report(reason: str) -> None:
            self.say(note.format(reason))

        return contents.current(parent, name, digest, report, deep=self.deep)

    def kept(
        self, folder: Path, stamp: str, read: Callable[[Path], R | None], make: Callable[[Path], R]
    ) -> R:
        """Return what the stamp of an installation says; ``make`` fills a folder if there is none.

        ``read`` reads a stamp that is of this installation, else None.
        """
        path = folder / stamp
        record = read(path)
        if record is None:
            with filled(folder, lambda: read(path) is not None) as temporary:
                record = make(temporary)
                text = record.model_dump_json(indent=1)
                (temporary / stamp).write_text(seal.sealed(text), "utf-8")
            record = read(path) or record  # another run may have made it meanwhile
        for used in (path, contents.mark_of(folder)):
            self.dependencies.file(used)
        return record

    def damage(self, folder: Path) -> str | None:
        """Return what is not as it was installed in a folder; None if all is."""
        return contents.damage(folder, deep=self.deep)

    def install_into(
        self, target: Path, python: str, lines: Sequence[str], failure: Failure, *, own: bool = True
    ) -> contents.Listed:
        """Install the packages of lines, and nothing that they need, into a folder."""
        target.mkdir(parents=True)
        words = ["pip", "install", "--quiet", "--no-deps", "--python", python]
        words += ["--target", str(target), "--requirements", "-"]
        return self.install(words, target, failure, text="\n".join(lines), own=own)

    def install(
        self, words: list[str], folder: Path, failure: Failure, *, text: str = "", own: bool = True
    ) -> contents.Listed:
        """Install packages, and download those again whose files uv's cache has damaged.

        Returns the files of the folder.
        """
        command = uv.command(self.project if own else None, *words)
        self.call(command, text, failure)
        files = contents.listed(folder)
        damaged = contents.unlike_record(folder, files)
        if not damaged:
            return files
        again = [word for name in damaged for word in ("--reinstall-package", name)]
        self.call([*command, "--no-cache", *again], text, failure)
        files = contents.listed(folder)
        still = contents.unlike_record(folder, files)  # of the wheel itself
        if mended := sorted(set(damaged) - set(still)):
            self.say(
                f"uv's cache has damaged files of {', '.join(mended)}; they were downloaded again. "
                "Other projects get the damaged ones until you run uv cache clean "
                f"{' '.join(mended)}"
            )
        return files


def kept_lock(path: Path, is_whole: Callable[[str], bool]) -> str | None:
    """Return the lock of an earlier run; None if there is none or it is damaged."""
    try:
        lock = seal.opened_lines(read_whole(path).decode())
    except (OSError, ValueError):
        return None
    return lock if is_whole(lock) else None


@contextlib.contextmanager
def filled(folder: Path, is_whole: Callable[[], bool], aside: Path | None = None) -> Iterator[Path]:
    """Give a folder to fill, which becomes ``folder`` unless another run has just made that.

    ``aside`` is the folder beside which it lies, if not ``folder``.
    """
    beside = aside or folder
    temporary = beside.with_name(f"{beside.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        yield temporary
        _move(temporary, folder, is_whole)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move(temporary: Path, folder: Path, is_whole: Callable[[], bool]) -> None:
    try:
        temporary.rename(folder)
    except OSError:
        if is_whole():
            return
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
