"""Commits of a user's package: which files are its modules, what it says of itself, and on which environment it runs."""

from pathlib import Path

import pytest

from samebits.base.errors import StackError
from samebits.stacks import package_source
from samebits.stacks.packages import installations
from tests.stacks.test_source import build
from tests.support.builders import stack_spec
from tests.support.clones import clone, git

pytestmark = pytest.mark.processes

PROJECT = (
    '[project]\nname = "My_Models"\nversion = "0.3"\ndependencies = ["einops>=0.8", "torch"]\n'
)
PACKAGE = {
    "pyproject.toml": PROJECT,
    "src/my_models/__init__.py": "A = 1\n",
    "src/my_models/table.json": "{}",
    "tests/test_it.py": "",
}


def package(tmp_path, files):
    repo = tmp_path / "my-models"
    (sha,) = clone(repo, ("One", files))
    return package_source.read(repo, sha)


@pytest.mark.parametrize(
    ("files", "root", "names"),
    [
        (["src/one/__init__.py", "src/one/a.py", "conftest.py"], "src/", {"one"}),
        (["one/__init__.py", "train.py", "setup.py", "tests/__init__.py"], "", {"one"}),
        (["one.py", "setup.py", "two.py"], "", {"one", "two"}),
        (["python/one/__init__.py", "docs/conf.py", "setup.py"], "python/", {"one"}),
        (["csrc/one.cpp", "scripts/run.py", "data/x.json"], "", set()),
    ],
)
def test_where_the_modules_of_a_repository_lie(files, root, names):
    assert package_source.layout_of(files) == (root, names)


def test_which_files_are_part_of_a_package():
    layout = package_source.Layout("src/", frozenset({"one", "two"}))
    paths = ("src/one/deep/a.py", "src/two.py", "src/three.py", "one/a.py", "README.md")
    assert [*map(layout.place, paths)] == ["one/deep/a.py", "two.py", "", "", ""]


def test_what_a_package_says_of_itself(tmp_path):
    found = package(tmp_path, PACKAGE)
    assert (found.name, found.version) == ("my-models", "0.3")
    assert [*map(str, found.requires)] == ["einops>=0.8", "torch"]


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"setup.py": 'setup(\n    name="peft",\n    version=VERSION,\n)\n'}, ("peft", "1.2", None)),
        ({"pyproject.toml": '[project]\nname = "x"\ndynamic = ["dependencies"]\n'}, ("x", "1.2", None)),
        ({"pyproject.toml": '[project]\nname = "x"\n'}, ("x", "1.2", ())),
        ({"setup.py": "", "one/version.py": "__version__ = '7'\n", "one/__init__.py": ""}, ("one", "7", None)),
        ({"pyproject.toml": '[project]\nname = "/x"\n'}, ("one", "1.2", ())),
        ({"pyproject.toml": "not toml ["}, ("one", "1.2", None)),
    ],
)  # fmt: skip
def test_what_only_a_build_would_say_is_not_known(tmp_path, about, expected):
    found = package(tmp_path, {"one/__init__.py": '__version__ = "1.2"\n', **about})
    assert (found.name, found.version, found.requires) == expected


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"setup.py": "setup(ext_modules=[CUDAExtension('x', [])])\n"}, "setup.py has ext_modules"),
        (
            {"pyproject.toml": '[build-system]\nbuild-backend = "maturin"\n'},
            "its build backend is maturin",
        ),
        (
            {"pyproject.toml": "[tool.setuptools]\next-modules = []\n"},
            "pyproject.toml has ext-modules",
        ),
    ],
)
def test_a_package_that_has_to_be_compiled_is_refused_with_what_to_do(tmp_path, files, message):
    with pytest.raises(StackError, match=rf"{message}.*git bisect run"):
        package(tmp_path, {"one/__init__.py": "", **files})


def test_a_repository_without_modules_is_refused(tmp_path):
    with pytest.raises(StackError, match="nothing that Python could import"):
        package(tmp_path, {"README.md": "text"})


def test_a_commit_comes_before_the_packages_of_the_environment_of_a_release(tmp_path):
    repo = tmp_path / "my-models"
    one, two, page = clone(
        repo,
        ("One", PACKAGE),
        ("Two", {"src/my_models/__init__.py": "A = 2\n"}),
        ("A page", {"docs/page.md": "text"}),
    )
    spec = stack_spec("one", "5.15", commit=f"{repo}@{one}")
    first, builder = build(tmp_path, spec.transformers, commit=spec.commit)
    others = [
        builder.build(spec.model_copy(update={"id": sha[:10], "commit": f"{repo}@{sha}"}))
        for sha in (two, page)
    ]
    top = Path(others[0].commit)
    assert (top / "my_models" / "__init__.py").read_text() == "A = 2\n"
    assert sorted(path.name for path in top.iterdir()) == ["my_models", "my_models-0.3.dist-info"]
    assert "Name: my-models\nVersion: 0.3\n" in (
        top / "my_models-0.3.dist-info" / "METADATA"
    ).read_text("utf-8")
    assert top.parent in installations(others[0])
    assert first.python == others[0].python  # one environment
    assert first.lock_digest != others[0].lock_digest == others[1].lock_digest
    assert others[0].id == two[:10]
    assert git(repo, "status", "--porcelain") == ""
