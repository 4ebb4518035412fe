"""Environments that the real uv builds of wheels of a few bytes, from an index of this machine."""

import json
import os
import py_compile
import shutil
from pathlib import Path

import pytest

from samebits.base.errors import StackError, StackMachineError
from samebits.base.filestate import Dependencies, changed
from samebits.stacks import contents
from samebits.stacks.build import StackBuilder, environment_folder
from samebits.stacks.installer import Installer
from samebits.stacks.lock import is_plain_lock
from samebits_wire.seal import sealed_lines
from tests.support.builders import stack_spec
from tests.support.wheels import index, wheel

pytestmark = pytest.mark.processes
SPEC = stack_spec("4.48")
HONEST, PLANTED = "scale = 2.0\n", "scale = 3.0\n"
CONFIGS = 'CONFIG_MAPPING_NAMES = {"llama": "LlamaConfig"}\n'


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    wheel(folder, "torch", "2.13.0")
    wheel(folder, "transformers", "4.48.3", requires=["tiny", "torch"])
    wheel(folder, "tiny", code=HONEST)
    wheel(folder, "blake3")
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return wheel(tmp_path_factory.mktemp("planted"), "tiny", code=PLANTED).parent


@pytest.fixture(scope="module")
def address(wheels):
    with index(wheels) as served:
        yield served


@pytest.fixture
def environ(address, tmp_path, monkeypatch):
    """Return the variables of a user without settings; the current folder is an empty one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "UV_DEFAULT_INDEX": f"http://user:hidden@{address}",
        "UV_PYTHON_INSTALL_DIR": os.environ.get("UV_PYTHON_INSTALL_DIR", ""),
    }


class Stacks:
    """Builds the stack of ``SPEC`` for one project after the other."""

    def __init__(self, folder, environ):
        self.folder, self.environ, self.notes = folder, environ, []

    def build(self, work="work", stacks=None, **options):
        installer = Installer(self.environ, **{"say": self.notes.append, **options})
        stacks = stacks or self.folder / "stacks"
        return StackBuilder(self.folder / work, installer, stacks=stacks).build(SPEC)


@pytest.fixture
def stacks(tmp_path, environ):
    return Stacks(tmp_path, environ)


def module(stack):
    return next(environment_folder(stack).glob("lib/*/site-packages/tiny/__init__.py"))


def settings(folder, kind, links):
    """Write settings of uv by which a folder chooses where packages come from."""
    folder.mkdir(parents=True, exist_ok=True)
    table = (
        f'[[{"" if kind == "uv.toml" else "tool.uv."}index]]\nurl = "{links}"\nformat = "flat"\n'
    )
    project = '[project]\nname = "model"\nversion = "1"\n' if kind != "uv.toml" else ""
    (folder / kind).write_text(project + table)


# what a downloaded folder says to uv


@pytest.mark.parametrize("kind", ["uv.toml", "pyproject.toml"])
@pytest.mark.parametrize("above", [False, True], ids=["in it", "above it"])
def test_a_downloaded_folder_does_not_choose_packages(
    tmp_path, stacks, planted, monkeypatch, kind, above
):
    model = tmp_path / "download" / "model"
    model.mkdir(parents=True)
    settings(model.parent if above else model, kind, planted)
    (model / "config.json").write_text("{}")
    (model / ".python-version").write_text("3.99\n")
    monkeypatch.chdir(model)
    # as `samebits check .` does, and as a matrix.yaml does that someone wrote there
    for project in (None, model):
        stack = stacks.build(f"work {project}", project=project)
        assert module(stack).read_text() == HONEST
    assert stacks.notes == []


def test_what_another_index_gave_is_never_in_an_environment_of_the_honest_name(
    tmp_path, stacks, planted
):
    project = tmp_path / "project"
    settings(project, "uv.toml", planted)
    own = stacks.build("own", project=project)  # the settings beside matrix.yaml count
    assert module(own).read_text() == PLANTED
    later = stacks.build("later")
    assert module(later).read_text() == HONEST
    assert own.packages == later.packages
    assert own.lock_digest != later.lock_digest
    (project / "model.safetensors").touch()
    assert module(stacks.build("again", project=project)).read_text() == HONEST


def test_a_lock_says_where_packages_come_from_and_no_password(stacks, address, wheels):
    lock = stacks.build().lock
    host = address.partition("/")[0]
    assert lock.count(f"  # from http://{host}\n") == 3
    assert "hidden" not in lock
    digest = contents._digest(wheels / "tiny-1.0-py3-none-any.whl")
    assert f"tiny==1.0 --hash=sha256:{digest}  # from" in lock


def test_links_that_a_user_names_relative_to_his_folder_count(tmp_path, stacks, wheels):
    shutil.copytree(wheels, tmp_path / "here" / "links")
    del stacks.environ["UV_DEFAULT_INDEX"]
    stacks.environ |= {"PIP_FIND_LINKS": "links", "UV_OFFLINE": "1"}
    lock = stacks.build().lock
    assert lock.count("  # from a local folder\n") == 3
    assert str(tmp_path) not in lock


def test_a_wheel_that_changed_since_the_lock_is_not_installed(tmp_path, stacks, wheels, planted):
    links = shutil.copytree(wheels, tmp_path / "links")
    del stacks.environ["UV_DEFAULT_INDEX"]
    stacks.environ |= {"UV_FIND_LINKS": str(links), "UV_OFFLINE": "1"}
    stacks.build()
    shutil.rmtree(tmp_path / "stacks")
    shutil.copy(planted / "tiny-1.0-py3-none-any.whl", links)
    stacks.environ["UV_CACHE_DIR"] = str(tmp_path / "other")
    with pytest.raises(StackMachineError, match=r"--upgrade makes a new lock(.|\n)*Hash mismatch"):
        stacks.build()
    assert module(stacks.build(upgrade=True)).read_text() == PLANTED


def test_the_hash_is_in_the_lock_if_the_index_has_none(tmp_path, stacks, wheels):
    with index(shutil.copytree(wheels, tmp_path / "links"), hashes=False) as address:
        stacks.environ["UV_DEFAULT_INDEX"] = f"http://user:hidden@{address}"
        lock = stacks.build().lock
    digest = contents._digest(wheels / "tiny-1.0-py3-none-any.whl")
    assert f"tiny==1.0 --hash=sha256:{digest}  # from" in lock
    assert is_plain_lock(sealed_lines(lock))


# environments that are not as they were installed


def edit(path, text):
    """Change a file in place, as an editor does: links to it, as in uv's cache, change as well."""
    with path.open("w") as file:
        file.write(text)
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))


def test_a_changed_constant_is_found_and_repaired_though_uvs_cache_has_it_too(stacks):
    first = stacks.build()
    assert module(first).stat().st_nlink > 1, "uv's cache is not linked, so this tests nothing"
    edit(module(first), PLANTED)
    second = stacks.build()
    assert module(second).read_text() == HONEST
    assert second.lock_digest != first.lock_digest  # of which results follow
    assert second.lock == first.lock
    assert any("tiny/__init__.py was changed" in note for note in stacks.notes)
    assert any("uv cache clean tiny" in note for note in stacks.notes)
    stacks.notes.clear()
    assert stacks.build() == second
    assert stacks.notes == []


@pytest.mark.parametrize("damage", ["removed", "added", "cut", "list"])
def test_any_damage_is_found(stacks, damage):
    first = stacks.build()
    if damage == "removed":
        module(first).unlink()
    elif damage == "added":
        module(first).with_name("sitecustomize.py").write_text("")
    elif damage == "cut":
        edit(module(first), "")
    else:
        (environment_folder(first) / "samebits-files.json").write_text("{}")
    second = stacks.build()
    assert second.python != first.python
    assert module(second).read_text() == HONEST
    assert Path(first.python).exists()  # for the run that may use it now
    assert len([note for note in stacks.notes if "was damaged" in note]) == 1


def test_times_that_moved_alone_are_no_damage(stacks):
    first = stacks.build()
    os.utime(module(first), (1, 1))
    assert stacks.build() == first
    assert stacks.notes == []


def test_a_change_that_keeps_size_and_time_is_found_by_deep(stacks):
    first = stacks.build()
    before = module(first).stat()
    module(first).write_text(PLANTED)
    os.utime(module(first), ns=(before.st_atime_ns, before.st_mtime_ns))
    dependencies = Dependencies()
    assert stacks.build(dependencies=dependencies) == first
    assert changed(dependencies.files, {}) is None
    second = stacks.build(deep=True)
    assert changed(dependencies.files, {}) is not None  # so no receipt answers with its results
    assert module(second).read_text() == HONEST
    assert second.lock_digest != first.lock_digest


def test_bytecode_that_no_run_wrote_is_removed(tmp_path, stacks):
    stack = stacks.build()
    source = module(stack)
    bytecode = Path(py_compile.compile(str(source)))
    contents.record_bytecode(environment_folder(stack))
    assert stacks.build() == stack
    assert bytecode.exists()  # clean: a run had written it
    planted = tmp_path / "planted.py"
    planted.write_text(PLANTED)
    status = source.stat()
    os.utime(planted, ns=(status.st_atime_ns, status.st_mtime_ns))  # the header says it is current
    py_compile.compile(str(planted), cfile=str(bytecode))
    assert stacks.build() == stack
    assert not bytecode.exists()
    assert stacks.notes == []


def test_a_copy_of_the_cache_runs_its_own_interpreter(tmp_path, stacks):
    first = stacks.build()
    copy = shutil.copytree(tmp_path / "stacks", tmp_path / "copy", symlinks=True)
    second = stacks.build(stacks=copy)
    assert Path(second.python).is_relative_to(copy)
    assert second.lock_digest == first.lock_digest
    assert stacks.notes == []


def test_cut_packages_of_the_probes_are_installed_again(stacks):
    stack = stacks.build()
    (path,) = environment_folder(stack).glob("samebits-packages/blake3/__init__.py")
    whole = path.read_text()
    edit(path, whole[: len(whole) // 2])
    assert stacks.build() == stack
    assert path.read_text() == whole


def test_a_wheel_whose_own_record_is_wrong_is_no_damage(tmp_path, stacks, wheels):
    links = shutil.copytree(wheels, tmp_path / "links")
    wheel(links, "tiny", code=HONEST, record="0" * 43)
    del stacks.environ["UV_DEFAULT_INDEX"]
    stacks.environ |= {"UV_FIND_LINKS": str(links), "UV_OFFLINE": "1"}
    assert stacks.build() == stacks.build()
    assert stacks.notes == []


def test_marks_stay_when_the_files_of_a_damaged_environment_go(tmp_path, stacks):
    first = stacks.build()
    edit(module(first), PLANTED)
    second = stacks.build()
    folder = environment_folder(first)
    os.utime(folder / "samebits-damaged", (0, 0))
    contents.remove_damaged(tmp_path / "stacks", 1.0)
    assert [path.name for path in folder.iterdir()] == ["samebits-damaged"]
    assert stacks.build() == second


# failures of uv


def test_only_a_resolution_is_about_packages(stacks):
    spec = stack_spec("4.48", packages=("tiny>9",))
    with pytest.raises(StackError, match="no set of packages fits") as caught:
        StackBuilder(stacks.folder / "w", Installer(stacks.environ)).build(spec)
    assert not caught.value.machine


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"UV_CACHE_DIR": os.devnull}, "cache"),
        ({"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}, "127.0.0.1"),
        ({"UV_OFFLINE": "1"}, "network was disabled"),
        ({"SSL_CERT_FILE": "x.pem", "UV_DEFAULT_INDEX": "https://127.0.0.1:9"}, "127.0.0.1"),
    ],
    ids=["cache", "refused", "offline", "certificates"],
)
def test_any_other_failure_is_the_machines_in_uvs_own_words(stacks, variables, words):
    stacks.environ |= {"UV_HTTP_RETRIES": "0"} | variables
    with pytest.raises(StackMachineError) as caught:
        stacks.build()
    assert words in str(caught.value)
    assert "no set of packages fits" not in str(caught.value)


def test_a_built_stack_needs_neither_network_nor_uvs_cache(stacks):
    first = stacks.build()
    stacks.environ |= {"UV_CACHE_DIR": os.devnull, "UV_OFFLINE": "1"}
    assert stacks.build() == first


def test_the_list_of_files_is_as_large_as_the_installation(stacks):
    stack = stacks.build()
    files = json.loads((environment_folder(stack) / "samebits-files.json").read_text())
    assert module(stack).relative_to(environment_folder(stack)).as_posix() in files
