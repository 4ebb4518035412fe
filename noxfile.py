# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "blake3>=1.0,<2",
#   "huggingface-hub>=0.30",
#   "jinja2>=3.1",
#   "markdown-it-py>=3.0",
#   "markupsafe>=3.0",
#   "ml-dtypes>=0.5",
#   "nox>=2026.8",
#   "numpy>=2.0",
#   "obstore>=0.10",
#   "packaging>=25.0",
#   "platformdirs>=4.3",
#   "pydantic>=2.14",
#   "pygments>=2.19",
#   "pyyaml>=6.0.2",
#   "rich>=14.0",
#   "tabulate>=0.9",
#   "unidiff>=1.0",
#   "uv>=0.9",
# ]
# ///
"""Sessions of samebits; ``nox -l`` lists them, ``nox -s matrix`` is the main one.

nox installs the script dependencies above into an environment of its own, so that
``pip install nox`` is all that a machine needs. No logic lives here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from bench.sessions import environment_ids

nox.needs_version = ">=2026.8"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "tests"]

PROJECT = nox.project.load_toml("pyproject.toml")


def checkout() -> dict[str, str]:
    """Return an environment in which Python finds the packages of this checkout, none of them installed."""
    folders = (str(ROOT), str(ROOT / "probes"), os.environ.get("PYTHONPATH", ""))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def samebits(session: nox.Session, *arguments: str) -> None:
    """Run samebits from this checkout; a user's mistake ends nox with 2, an incomplete run with 3."""
    command = [sys.executable, "-m", "samebits", *arguments]
    env = checkout() | {"NOX_CURRENT_SESSION": session.name}
    code = subprocess.run(command, cwd=ROOT, check=False, env=env).returncode
    if code in (2, 3):
        raise SystemExit(code)
    if code:
        session.error(f"samebits {arguments[0]} ended with {code}")


def run_module(session: nox.Session, name: str) -> None:
    """Run a module of this checkout with the options of the session."""
    command = [sys.executable, "-m", name, *session.posargs]
    subprocess.run(command, cwd=ROOT, check=True, env=checkout())


def install(session: nox.Session, group: str) -> None:
    """Install this checkout and a dependency group; pip's find-links reach uv as well."""
    env = {"UV_FIND_LINKS": os.environ.get("UV_FIND_LINKS", os.environ.get("PIP_FIND_LINKS", ""))}
    session.install("-e", ".", *nox.project.dependency_groups(PROJECT, group), env=env)


@nox.session(venv_backend="none")
def matrix(session: nox.Session) -> None:
    """Run the matrix and write reports/latest/; options: nox -s matrix -- --help."""
    samebits(session, "matrix", *session.posargs)


@nox.session(venv_backend="none", default=False)
def zoo(session: nox.Session) -> None:
    """Run zoo.yaml, the models that the findings are based on; options: nox -s zoo -- --help."""
    samebits(session, "matrix", "--matrix", "zoo.yaml", "--compress", *session.posargs)


@nox.session(venv_backend="none", default=False, allow_parallel=True)
@nox.parametrize("environment", [nox.param(id_, id=id_) for id_ in environment_ids(sys.argv)])
def probe(session: nox.Session, environment: str) -> None:
    """Build one environment and run the probes in it; `matrix` then finds the captures."""
    samebits(session, "probe", "--environments", environment, *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, those in real environments included; -m "not stacks" leaves those out."""
    install(session, "tests")
    if session.posargs:
        session.run("pytest", *session.posargs)
        return
    # a file stays with its worker, as tests of a file share the runs that they look at
    slowest = ("--durations=20", "--durations-min=10")
    session.run(
        "pytest", "-m", "not stacks and not long", "-n", "auto", "--dist", "loadfile", *slowest
    )
    real = ("tests/real", "-m", "not long")
    session.run("pytest", *real, "-n", "2", "--dist", "loadfile", *slowest)


@nox.session(name="tests-long", default=False)
def tests_long(session: nox.Session) -> None:
    """Run tests/real/long_*.py, and the tests that are marked as long: before a release.

    Also after the changes that the files of them name.
    """
    install(session, "tests")
    session.run("pytest", *map(str, ROOT.glob("tests/real/long_*.py")), *session.posargs)
    session.run("pytest", "tests", "-m", "long", *session.posargs)


@nox.session(name="tests-gpu", default=False)
def tests_gpu(session: nox.Session) -> None:
    """Run the tests that need a GPU of NVIDIA, on the torch that the machine has."""
    install(session, "tests")
    session.run("nvidia-smi", "-L", external=True)
    session.run("pytest", "tests/gpu", *session.posargs)


@nox.session(default=False)
def newest(session: nox.Session) -> None:
    """Run the tests in real environments on the newest release, which may be newer than they know."""
    install(session, "tests")
    command = ("pytest", "tests/real", "-n", "2", "--dist", "loadfile")
    session.run(*command, *session.posargs, env={"UV_CONSTRAINT": ""})


@nox.session(default=False)
def ray(session: nox.Session) -> None:
    """Test a run on a local Ray cluster of two workers, one of which is killed."""
    install(session, "tests")
    session.install("-e", ".[ray]")
    session.run("pytest", "tests/real/test_ray.py", *session.posargs)


@nox.session(default=False)
def browser(session: nox.Session) -> None:
    """Test report.html in Chromium, which is installed if absent; keep screenshots of it."""
    install(session, "browser")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        session.run(
            "apt-get", "install", "-y", "--no-install-recommends", "chromium", external=True
        )
    session.run("pytest", "tests/browser", *session.posargs)


@nox.session(default=False)
def pictures(session: nox.Session) -> None:
    """Take the pictures of the docs anew, of the committed report; needs the Chromium of the session browser."""
    install(session, "browser")
    session.run("python", "-m", "tests.browser.pictures")


@nox.session(default=False)
def schedulers(session: nox.Session) -> None:
    """Test the examples for Slurm, Kubernetes and a CI matrix; installs Slurm if it is absent."""
    install(session, "schedulers")
    if not shutil.which("slurmctld", path="/usr/sbin:/usr/bin"):
        packages = ("slurm-wlm", "munge")
        session.run("apt-get", "install", "-y", "--no-install-recommends", *packages, external=True)
    files = ("project/test_many_machines.py", "project/test_slurm.py", "real/test_slurm.py")
    session.run("pytest", *(f"tests/{file}" for file in files), *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, spelling."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("codespell")


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Measure what samebits costs and write docs/performance.md; --quick takes two minutes."""
    run_module(session, "bench")


@nox.session(name="bench-real", venv_backend="none", default=False)
def bench_real(session: nox.Session) -> None:
    """Measure models of 0.3 B parameters, with --large of 1 B, at every level."""
    run_module(session, "bench.real_size")


@nox.session(default=False)
def scale(session: nox.Session) -> None:
    """Simulate a run of many cells on Ray with fake stacks; write docs/scale.md; --quick takes minutes."""
    install(session, "tests")
    session.install("-e", ".[ray]")
    session.run("python", "-m", "bench.scale", *session.posargs)


@nox.session(venv_backend="none", default=False)
def levels(session: nox.Session) -> None:
    """Run zoo.yaml at every level and list what only a deeper level sees; takes hours on two cores."""
    run_module(session, "bench.levels")


@nox.session(name="zoo-gpu", venv_backend="none", default=False)
def zoo_gpu(session: nox.Session) -> None:
    """Run the models of zoo.yaml on the GPU of this machine, on its torch; compare with the CPU's verdicts."""
    run_module(session, "bench.gpu")


@nox.session(venv_backend="none", default=False)
def defaults(session: nox.Session) -> None:
    """Add new releases to the table of defaults; --measure compares it with classes that are made."""
    run_module(session, "bench.defaults")


@nox.session(venv_backend="none", default=False)
def recall(session: nox.Session) -> None:
    """Count published regressions that samebits finds, and false alarms; write docs/recall.md."""
    run_module(session, "bench.recall")


@nox.session(venv_backend="none", default=False)
def guide(session: nox.Session) -> None:
    """Ask what is shown of each change that transformers announced itself; write docs/guide.md."""
    run_module(session, "bench.guide")


@nox.session(venv_backend="none", default=False)
def fixes(session: nox.Session) -> None:
    """Measure recall on fix commits that were drawn at random; write docs/recall.md. Takes an hour."""
    run_module(session, "bench.fixes.run")


@nox.session(venv_backend="none", default=False)
def bisect(session: nox.Session) -> None:
    """Bisect published regressions to their commits on a clone of transformers; write docs/bisect.md."""
    run_module(session, "bench.bisection")


@nox.session(venv_backend="none", default=False)
def watch(session: nox.Session) -> None:
    """Replay the night watch over transformers' main on a clone; write docs/watch.md."""
    run_module(session, "bench.watch")


@nox.session(venv_backend="none", default=False)
def coverage(session: nox.Session) -> None:
    """Make and run a tiny model of every type that a release knows; write docs/coverage.md. Takes hours."""
    run_module(session, "bench.coverage")


@nox.session(venv_backend="none", default=False)
def atlas(session: nox.Session) -> None:
    """Compare a tiny model of each type under many releases; write docs/atlas.md. Takes hours."""
    run_module(session, "bench.atlas")


@nox.session(venv_backend="none", default=False)
def variants(session: nox.Session) -> None:
    """Compare variants of configs of many types, and print those that do more than round."""
    run_module(session, "bench.variants")


@nox.session(venv_backend="none", default=False)
def unchanged(session: nox.Session) -> None:
    """Prove that the working tree's reports are those of a commit: nox -s unchanged -- REV."""
    run_module(session, "bench.unchanged")


@nox.session(default=False)
def schemas(session: nox.Session) -> None:
    """Write samebits/schemas/ from the records that define the files."""
    install(session, "tests")
    session.run("python", "-m", "samebits.schemas")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Write docs/reference/ from schema and options."""
    install(session, "tests")
    session.run("python", "-m", "samebits.manual")


@nox.session(default=False)
def site(session: nox.Session) -> None:
    """Build the pages of docs/ as a site in reports/site/, and check its links."""
    install(session, "site")
    session.run("pytest", "tests/site", *session.posargs)
