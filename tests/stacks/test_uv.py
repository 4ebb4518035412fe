"""How uv is called and what its output says."""

import os
from subprocess import CompletedProcess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.base.errors import StackMachineError
from samebits.stacks import uv
from samebits.stacks.lock import LINE

WHEEL = (
    '{ url = "https://me:secret@i/a-1-py3-none-any.whl?key=secret", hashes = { sha256 = "%064d" } }'
)


def lock(text):
    return uv.locked_lines(f"[[packages]]\n{text}")


def test_a_line_has_the_hashes_of_the_files_that_fit_and_their_host():
    files = f"wheels = [{WHEEL % 2}, {WHEEL % 1}]\nsdist = {WHEEL % 3}"
    assert lock(f'name = "a"\nversion = "1"\n{files}') == [
        f"a==1 --hash=sha256:{1:064d} --hash=sha256:{2:064d}  # from https://i"
    ]
    assert lock(f'name = "a"\nversion = "1"\nsdist = {WHEEL % 3}') == [
        f"a==1 --hash=sha256:{3:064d}  # from https://i"
    ]


def test_a_package_of_git_has_its_commit():
    vcs = 'vcs = { type = "git", url = "https://h/a", commit-id = "abc", subdirectory = "b" }'
    assert lock(f'name = "a"\nversion = "1"\n{vcs}') == ["a @ git+https://h/a@abc#subdirectory=b"]


@pytest.mark.parametrize("text", ['version = "1"', 'name = "a"\nversion = "1"', "wheels = 3", "="])
def test_a_lock_of_an_unknown_form_is_the_machines(text):
    with pytest.raises(StackMachineError, match="unknown form"):
        lock(text)


@given(st.text(), st.text())
def test_settings_of_uv_are_refused_in_a_kept_line(name, rest):
    for line in (f"-{name}", f"{name} --index-url={rest}", f"{name}=={rest}\n--pre", f"{name}\\"):
        assert LINE.fullmatch(line) is None


def test_the_settings_beside_a_matrix_count_unless_a_model_lies_there_or_above(tmp_path):
    own = uv.settings_folder(None)
    assert [path.name for path in own.iterdir()] == ["uv.toml"]
    project = tmp_path / "above" / "project"
    project.mkdir(parents=True)
    assert uv.settings_folder(project) == own  # it has none
    (project / "pyproject.toml").write_text("[tool.ruff]\n")
    assert uv.settings_folder(project) == own
    (tmp_path / "above" / "uv.toml").touch()
    assert uv.settings_folder(project) == own  # those above it do not count
    (project / "pyproject.toml").write_text("[tool.uv]\n")
    assert uv.settings_folder(project) == project
    weights = tmp_path / "above" / "model-00001-of-00002.safetensors"
    weights.touch()
    assert uv.settings_folder(project) == own
    weights.unlink()
    config = tmp_path / "above" / "config.json"
    config.write_text('{"model_type": "llama"}')
    assert uv.settings_folder(project) == own
    config.write_text('{"port": 8080}')  # that of another program
    assert uv.settings_folder(project) == project
    (project / "uv.toml").touch()
    assert uv.settings_folder(project) == project
    (project / "config.json").write_text("{}")
    assert uv.settings_folder(project) == own


def test_a_file_of_another_user_in_a_shared_folder_makes_no_model_of_what_lies_below(tmp_path):
    shared = tmp_path / "shared"
    project = shared / "project"
    project.mkdir(parents=True)
    (project / "uv.toml").touch()
    (shared / "model.safetensors").touch()
    assert uv.settings_folder(project) != project
    shared.chmod(0o1777)
    assert uv.settings_folder(project) == project
    (shared / "uv.toml").touch()
    assert uv.settings_folder(shared) != shared  # there the settings may be anyone's, too
    (project / "model.safetensors").touch()
    assert uv.settings_folder(project) != project


def test_an_empty_variable_stays_empty():
    """An empty path would be the current folder."""
    assert uv.environment({"UV_CONSTRAINT": "", "UV_FIND_LINKS": ""}) == {
        "UV_CONSTRAINT": "",
        "UV_FIND_LINKS": "",
    }


def test_paths_of_variables_are_absolute_and_addresses_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two words"):
        (tmp_path / name).mkdir()
    environ = {
        "UV_FIND_LINKS": "one https://h/x",
        "UV_CACHE_DIR": "two words",
        "UV_DEFAULT_INDEX": "https://me:secret@h/simple",
        "UV_INDEX_STRATEGY": "one",
        "UV_WORKING_DIR": "one",
    }
    assert uv.environment(environ) == {
        "UV_FIND_LINKS": f"{tmp_path / 'one'} https://h/x",
        "UV_CACHE_DIR": str(tmp_path / "two words"),
        "UV_DEFAULT_INDEX": "https://me:secret@h/simple",
        "UV_INDEX_STRATEGY": "one",
    }


def test_a_signal_without_words_is_named():
    ended = CompletedProcess([], -25, "", "")
    assert uv.last_words(ended).startswith("uv was ended by signal 25 (")
    assert uv.last_words(CompletedProcess([], 3, "", "")).endswith(
        "exit code 3 and printed nothing"
    )
    assert uv.last_words(CompletedProcess([], 1, "out", "\x1b[31merror\x1b[0m")) == "error"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("error: No solution found when resolving dependencies\n  cause: Because a", True),
        ("\u00d7 No solution\n  found when resolving", True),
        (
            "No solution found …\nhint: Packages were unavailable because the network was disabled.",
            False,
        ),
        ("error: Failed to initialize cache at `/x`: Read-only file system (os error 30)", False),
        ("error: Failed to fetch: https://i/simple\n cause: invalid peer certificate", False),
        ("memory allocation of 4096 bytes failed", False),
        (
            "error: No interpreter found for Python 3.11 in managed installations or search path",
            False,
        ),
        ("error: failed to write to file `/x`: No space left on device (os error 28)", False),
        ("", False),
    ],
)
def test_only_a_resolution_is_about_packages(output, expected):
    assert uv.is_about_packages(output) is expected


def test_a_uv_that_is_nowhere_is_the_machines(monkeypatch):
    monkeypatch.setattr(uv, "find_uv_bin", lambda: (_ for _ in ()).throw(FileNotFoundError))
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(StackMachineError, match="pip install uv"):
        uv.program()


def test_a_pipe_in_the_place_of_settings_is_none(tmp_path):
    os.mkfifo(tmp_path / "pyproject.toml")
    assert uv.settings_folder(tmp_path) == uv.settings_folder(None)
