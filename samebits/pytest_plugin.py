"""The pytest plugin: the fixture ``samebits`` and the option ``--samebits-update``.

pytest imports this module in every run of every project that has samebits installed. So it imports
nothing but pytest, and the rest comes with the first test that uses the fixture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from samebits.gate.testing import Bits, TestSession

_SESSION = pytest.StashKey["TestSession"]()
_TESTS = pytest.StashKey["_Tests"]()
_OUTPUT = "samebits"
"""Key of what a worker of xdist tells the process that started it."""
_COMPLETE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


class _Tests:
    """The tests of a run, of all workers: which ended well, and whether all of their files' ran."""

    def __init__(self, *, complete: bool) -> None:
        self.passed: set[str] = set()
        self.ran: set[str] = set()
        self.complete = complete
        self.unused: list[tuple[str, str]] = []
        self.written = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test ended."""
        self.ran.add(report.nodeid)
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    @property
    def files(self) -> set[str]:
        """The files all of whose tests ended well."""
        return _files(self.ran) - _files(self.ran - self.passed) if self.complete else set()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("samebits", "bits that samebits.lock keeps")
    group.addoption(
        "--samebits-update",
        action="store_true",
        help="record the models and tensors of the tests that run, and remove unused tensors",
    )
    group.addoption(
        "--samebits-lock",
        metavar="FILE",
        help="the lock (default: samebits.lock in the root directory)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Remember which tests are selected."""
    narrow = any("::" in argument for argument in config.args)
    options = (config.getoption(name, None) for name in ("keyword", "markexpr", "lf"))
    tests = _Tests(complete=not narrow and not any(options))
    config.stash[_TESTS] = tests
    config.pluginmanager.register(tests, "samebits-tests")


@pytest.fixture
def samebits(request: pytest.FixtureRequest) -> Bits:
    """Bits that samebits.lock keeps: ``samebits.check(model)``, ``samebits.tensor(name, value)``."""
    from samebits.gate.testing import Bits  # noqa: PLC0415  torch-free, and still not for every run

    return Bits(_session(request.config), request.node.nodeid)


def _session(config: pytest.Config) -> TestSession:
    if _SESSION not in config.stash:
        from samebits.base.workfolder import WORK  # noqa: PLC0415
        from samebits.gate.testing import TestSession  # noqa: PLC0415

        named = config.getoption("--samebits-lock")
        lock = Path(named) if named else config.rootpath / "samebits.lock"
        cache = getattr(config, "cache", None)
        values = cache.mkdir("samebits") if cache is not None else config.rootpath / WORK
        updates = bool(config.getoption("--samebits-update"))
        config.stash[_SESSION] = TestSession(lock, values, updates=updates)
    return config.stash[_SESSION]


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Remember that files did not run in full."""
    for item in items[:1]:
        item.config.stash[_TESTS].complete = False


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the lock, or tell the process that does."""
    config = session.config
    if hasattr(config, "workeroutput"):
        if _SESSION in config.stash:
            config.workeroutput[_OUTPUT] = config.stash[_SESSION].as_json()
        if not config.stash[_TESTS].complete:
            config.workeroutput[f"{_OUTPUT}-incomplete"] = True
        return
    _finish(config, exitstatus)


def _finish(config: pytest.Config, exitstatus: int) -> None:
    if _SESSION not in config.stash:
        return
    tests, state = config.stash[_TESTS], config.stash[_SESSION]
    if exitstatus not in _COMPLETE:
        return
    tests.unused = state.unused(tests.passed, tests.files)
    tests.written = state.write(tests.unused)


def _files(tests: set[str]) -> set[str]:
    return {test.partition("::")[0] for test in tests}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ANN401, ARG001  of xdist
    """Take what a worker of xdist used and recorded."""
    output = getattr(node, "workeroutput", None) or {}
    if output.get(f"{_OUTPUT}-incomplete"):
        node.config.stash[_TESTS].complete = False
    if _OUTPUT in output:
        _session(node.config).add(output[_OUTPUT])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:  # noqa: ANN401
    """Say whether the lock was written, and which tensors nothing asks for."""
    if _SESSION not in config.stash or hasattr(config, "workeroutput"):
        return
    tests, name = config.stash[_TESTS], config.stash[_SESSION].path.name
    if not tests.written and not tests.unused:
        return
    terminalreporter.section("samebits")
    if tests.written:
        terminalreporter.line(f"{name} is written: commit it")
    done = "removed" if tests.written else "pytest --samebits-update removes it"
    for test, tensor in tests.unused:
        terminalreporter.line(f"unused in {name}: {tensor} of {test} ({done})")
