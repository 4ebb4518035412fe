"""What a bisection is of: transformers, or a package of the user's beside one release."""

import asyncio
from pathlib import Path

import pytest

from samebits.base.errors import OptionError
from samebits.bisect import command
from samebits.bisect.history import History, HistoryError
from samebits.bisect.subject import of_package, of_transformers
from samebits.questions.changes.release import Release
from tests.support.builders import built_stack, stack_spec
from tests.support.clones import FOLDER, clone, write

pytestmark = pytest.mark.processes

TEMPLATE = stack_spec("5.x", packages=("numpy<3",))
NEEDS = '["einops>=0.8", "torch>=2", "my-models[all]", "x; python_version < \'3\'"]'
PROJECT = f'[project]\nname = "my-models"\nversion = "1"\ndependencies = {NEEDS}\n'
MODULE = "my_models/__init__.py"


def subject(tmp_path, *commits, base=None):
    repo = tmp_path / "my-models"
    shas = clone(repo, *commits)
    ends = tuple(History(repo).end(sha) for sha in (shas[0], shas[-1]))
    return of_package(repo, ends, TEMPLATE, base), repo, shas


def test_a_package_runs_beside_one_release(tmp_path):
    files = {"pyproject.toml": PROJECT, MODULE: ""}
    found, repo, (sha,) = subject(tmp_path, ("One", files), base="5.15")
    needed = ("einops>=0.8", 'x; python_version < "3"')
    spec = found.spec(sha, False)
    assert (spec.transformers, spec.base, spec.commit) == ("5.15", None, f"{repo}@{sha}")
    assert (spec.id, spec.packages) == (sha[:10], ("numpy<3",))
    assert (found.name, found.packages, found.notes) == ("my-models", needed, ())


def test_what_it_needs_that_only_a_build_would_say_is_noted(tmp_path):
    found, *_ = subject(tmp_path, ("One", {"setup.py": 'setup(name="peft")\n', MODULE: ""}))
    assert found.packages == ()
    assert "--package" in found.notes[0]


def test_files_are_those_of_the_layouts_of_both_ends(tmp_path):
    found, *_ = subject(tmp_path, ("Flat", {MODULE: ""}), ("In src", {f"src/{MODULE}": ""}))
    paths = (MODULE, f"src/{MODULE}", "docs/page.md", "setup.py")
    assert [*map(found.place, paths)] == [MODULE, MODULE, "", ""]


def test_what_ran_is_that_of_the_package(tmp_path):
    found, *_ = subject(tmp_path, ("One", {MODULE: ""}))
    stack = built_stack("5.15").model_copy(update={"commit": "/copies/one"})
    ran = found.ran(stack, {"models/gpt2.py": {1}, f"../{MODULE}": {2}})
    assert ran == (Path("/copies/one"), {MODULE: {2}}, "")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"README.md": ""}, "nothing that Python could import"),
        ({MODULE: "", "setup.py": "ext_modules = []"}, "has to be compiled"),
        ({"src/transformers/__init__.py": ""}, "clone of transformers: name it with --repo"),
    ],
)
def test_a_clone_that_cannot_be_searched_is_a_mistake(tmp_path, files, message):
    with pytest.raises(HistoryError, match=message):
        subject(tmp_path, ("One", files))


def test_commits_of_transformers_run_in_the_environment_of_the_last_release(tmp_path):
    repo = tmp_path / "transformers"
    (sha,) = clone(repo, ("One", {}))
    end = History(repo).end(sha)
    ends = (end, end._replace(release="5.15"))
    found = of_transformers(repo, ends, TEMPLATE, None)
    assert (found.spec(sha, False).base, found.spec(sha, True).base) == ("5.15", None)
    assert found.spec("5.15", False).transformers == "5.15"
    assert [found.place(path) for path in (f"{FOLDER}/ops.py", "setup.py")] == ["ops.py", ""]


@pytest.mark.parametrize("named", [{}, {"repo": "a", "package_repo": "b"}])
def test_exactly_one_clone_is_named(named):
    options = command.Options(model="tiny", first="1", last="2", **named)
    with pytest.raises(OptionError, match="name one"):
        asyncio.run(command.bisected(None, options, {}, print))


def test_modules_of_a_package_are_followed_by_their_full_names_too(tmp_path):
    files = {
        "my_models/__init__.py": "",
        "my_models/a.py": "import my_models.models.b\nfrom . import c\nimport transformers.models.d\n",
        "my_models/models/b.py": "import json\n",
        "my_models/c.py": "",
    }
    write(tmp_path, files)
    reached = Release(tmp_path, package="").closure(["my_models/a.py"])
    assert reached >= {"my_models/a.py", "my_models/models/b.py", "my_models/c.py"}
    assert reached <= files.keys()
