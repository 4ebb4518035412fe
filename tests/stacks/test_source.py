"""Sources of transformers in place of a release: read, copied once per content, run on an environment."""

import os
import zipfile
from pathlib import Path

import pytest

from samebits.base.errors import StackError
from samebits.stacks import build as build_module
from samebits.stacks import source
from samebits.stacks.build import StackBuilder, transformers_folder
from samebits.stacks.installer import Installer
from samebits.stacks.packages import installations
from tests.stacks.test_build import Uv
from tests.support.builders import stack_spec
from tests.support.clones import FOLDER, clone, git, write
from tests.support.clones import source as files_of
from tests.support.wheels import locked

pytestmark = pytest.mark.processes


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "transformers"
    clone(folder, ("One", files_of(ops="A = 1\n")), ("Two", {f"{FOLDER}/ops.py": "A = 2\n"}))
    return folder


def head(repo):
    return git(repo, "rev-parse", "HEAD")


def pins(tokenizers="0.22.2", transformers="5.15.1"):
    return locked(
        f"numpy==2.3.1\ntokenizers=={tokenizers}\ntorch==2.13.0\ntransformers=={transformers}\n"
    )


class UvWithPackages(Uv):
    """Makes environments with a folder for packages, which sources are linked from."""

    def does(self, what, command):
        if what == "venv":
            packages = (
                build_module.interpreter_of(Path(command[-1])).parents[1]
                / "lib/python3.11/site-packages"
            )
            packages.mkdir(parents=True)
        return super().does(what, command)


def build(tmp_path, text, lock=None, **changed):
    uv = UvWithPackages(lock or pins())
    builder = StackBuilder(
        tmp_path / "work", Installer({}, run=uv), stacks=tmp_path / "cache" / "stacks"
    )
    return builder.build(stack_spec("main", str(text), **changed)), builder


def test_a_checkout_a_commit_and_a_folder_without_git_of_one_content_are_the_same(tmp_path, repo):
    plain = tmp_path / "plain"
    write(plain, files_of(ops="A = 2\n"))
    checkout, commit, folder = (
        source.read(str(text)) for text in (repo, f"{repo}@{head(repo)}", plain)
    )
    assert checkout.digest == commit.digest == folder.digest
    assert checkout.version == commit.version == f"5.16.0.dev0+git.{head(repo)[:10]}"
    assert folder.version.startswith("5.16.0.dev0+files.")
    assert commit.base == "5.15"


def test_a_changed_checkout_says_so_and_is_another_content(repo):
    before = source.read(str(repo))
    (repo / FOLDER / "ops.py").write_text("A = 3\n")
    after = source.read(str(repo))
    assert f"+git.{head(repo)[:10]}.dirty." in after.version
    assert after.digest != before.digest
    (repo / FOLDER / "__pycache__").mkdir()
    (repo / FOLDER / "__pycache__" / "ops.cpython-311.pyc").write_bytes(b"")
    assert source.read(str(repo)).digest == after.digest


def test_a_wheel_is_a_source(tmp_path):
    path = tmp_path / "transformers-5.17.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files_of("5.17.0").items():
            wheel.writestr(name.removeprefix("src/"), text)
        about = (
            "Name: transformers\nRequires-Dist: numpy>=3\nRequires-Dist: flax ; extra == 'flax'\n"
        )
        wheel.writestr("transformers-5.17.0.dist-info/METADATA", about)
    wheel = source.read(str(path))
    assert (wheel.release, wheel.base) == ("5.17.0", "5.17.0")
    assert wheel.unmet({"numpy": "2.3.1"}, "3.11") == ["numpy>=3 (it has 2.3.1)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{tmp}", "no source of transformers"),
        ("{repo}@" + "0" * 40, "no source of transformers"),
        ("{tmp}/none", "there is no folder or file none$"),
        ("{tmp}/x.whl", "there is no folder or file x.whl$"),
    ],
)
def test_what_is_no_source_is_refused(tmp_path, repo, text, message):
    with pytest.raises(StackError, match=message):
        source.read(text.format(tmp=tmp_path, repo=repo))


@pytest.mark.parametrize(
    ("version", "base"),
    [
        ("5.16.0.dev0", "5.15"),
        ("5.15.2", "5.15.2"),
        ("5.0.0.dev0", "4.57"),
        ("5.0.1.dev0", "5.0"),
        ("9.9.0.dev0", "9.8"),
    ],
)
def test_the_release_that_a_version_descends_from(tmp_path, version, base):
    write(tmp_path, files_of(version))
    assert source.read(str(tmp_path)).base == base


def test_it_runs_in_the_environment_of_the_release(tmp_path, repo):
    stack, _ = build(tmp_path, f"{repo}@{head(repo)}")
    assert stack.transformers == f"5.16.0.dev0+git.{head(repo)[:10]}"
    assert "transformers==5.15.1" not in stack.lock
    folder = transformers_folder(stack)
    assert (folder / "ops.py").read_text() == "A = 2\n"
    assert folder.parent.parent in installations(stack)


def test_two_contents_share_no_result_and_one_content_has_one_copy(tmp_path, repo):
    sha = head(repo)
    one, _ = build(tmp_path, f"{repo}@{sha}")
    (repo / FOLDER / "ops.py").write_text("A = 3\n")
    other, builder = build(tmp_path, repo)
    assert one.lock_digest != other.lock_digest
    assert one.source != other.source
    git(repo, "checkout", "-q", "--", ".")
    again = builder.build(stack_spec("main", str(repo)))
    assert (again.lock_digest, again.source) == (one.lock_digest, one.source)
    shared = "site-packages/transformers/__init__.py"
    copies = [
        path.parent / shared for path in (tmp_path / "cache" / "sources").glob("*/site-packages")
    ]
    assert len({path.stat().st_ino for path in copies}) == 1  # a link where nothing changed


def test_an_environment_that_lacks_something_is_named(tmp_path, repo):
    (repo / "setup.py").write_text('install_requires = [\n    deps["tokenizers"],\n]\n')
    with pytest.raises(
        StackError, match=r"tokenizers<0\.24,>=0\.22 \(it has 0\.21\.0\).*base: RELEASE"
    ):
        build(tmp_path, repo, pins("0.21.0"))


def test_a_partial_clone_is_refused_and_never_copied_with_holes(tmp_path, repo):
    partial = tmp_path / "partial"
    git(repo, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{repo}", str(partial))
    older = git(repo, "rev-parse", "HEAD^")
    read = source.read(f"{partial}@{older}")  # of which it lacks ops.py alone
    with pytest.raises(StackError, match=r"lacks contents of files of 5\.16\.0\.dev0"):
        source.copied(read, tmp_path / "root", Installer({}, lambda _: None))
    whole = source.copied(
        source.read(f"{repo}@{older}"), tmp_path / "root", Installer({}, lambda _: None)
    )
    assert (whole / "transformers" / "ops.py").read_text() == "A = 1\n"
    bare = tmp_path / "bare"
    git(tmp_path, "clone", "-q", "-n", "--filter=blob:none", f"file://{repo}", str(bare))
    with pytest.raises(StackError, match="partial one"):
        source.read(f"{bare}@{older}")


def test_a_checkout_that_is_edited_while_it_is_copied_is_no_copy_of_what_was_read(tmp_path, repo):
    installer = Installer({}, lambda _: None)
    read = source.read(str(repo))
    (repo / FOLDER / "ops.py").write_text("A = 3\n")
    with pytest.raises(StackError, match=r"ops\.py of the checkout was changed"):
        source.copied(read, tmp_path / "root", installer)
    again = source.copied(source.read(str(repo)), tmp_path / "root", installer)
    assert (again / "transformers" / "ops.py").read_text() == "A = 3\n"


def test_a_shallow_clone_says_how_to_get_what_it_lacks(tmp_path, repo):
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repo}", str(shallow))
    older = git(repo, "rev-parse", "HEAD^")
    with pytest.raises(StackError, match="fetch --unshallow"):
        source.read(f"{shallow}@{older}")
    with pytest.raises(StackError) as raised:
        source.read(f"{repo}@{'0' * 40}")
    assert "shallow" not in str(raised.value)


def test_a_damaged_copy_is_made_again(tmp_path, repo):
    stack, _ = build(tmp_path, f"{repo}@{head(repo)}")
    (transformers_folder(stack) / "ops.py").write_text("A = 4\n")
    again, _ = build(tmp_path, f"{repo}@{head(repo)}")
    assert (transformers_folder(again) / "ops.py").read_text() == "A = 2\n"


def test_a_copy_that_no_run_used_for_a_week_is_removed(tmp_path, repo):
    sha = head(repo)
    old, builder = build(tmp_path, f"{repo}@{git(repo, 'rev-parse', 'HEAD^')}")
    os.utime(Path(old.source).parent / "samebits-used", (0, 0))
    new = builder.build(stack_spec("main", f"{repo}@{sha}"))
    assert (Path(old.source).exists(), Path(new.source).exists()) == (False, True)


def test_packages_of_a_model_are_resolved_beside_the_release(tmp_path, repo):
    stack, _ = build(tmp_path, f"{repo}@{head(repo)}")
    assert stack.installed["transformers"] == "5.15.1"
    assert stack.packages["transformers"] != "5.15.1"
