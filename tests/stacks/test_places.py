"""Stacks are shared by all projects of a user, unless a project has a folder of its own."""

from pathlib import Path

import pytest

from samebits.stacks.places import cache_folder, checks_folder, stacks_folder


def test_the_variable_names_the_cache(tmp_path):
    environ = {"SAMEBITS_CACHE": str(tmp_path / "cache")}
    assert cache_folder(environ) == tmp_path / "cache"
    assert stacks_folder(tmp_path / "work", environ) == tmp_path / "cache" / "stacks"
    assert checks_folder(environ) == tmp_path / "cache" / "checks"


def test_without_it_the_cache_is_that_of_the_platform(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder({}).is_absolute()
    assert "samebits" in cache_folder({}).parts


@pytest.mark.parametrize("named", ["relative", "~/cache"])
def test_the_cache_is_absolute(named, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder({"SAMEBITS_CACHE": named}) == tmp_path / Path(named).name


@pytest.mark.parametrize("is_link", [True, False], ids=["link", "folder"])
def test_a_project_may_have_its_own_stacks(tmp_path, is_link):
    environ, work = {"SAMEBITS_CACHE": str(tmp_path / "cache")}, tmp_path / "work"
    work.mkdir()
    if is_link:
        (tmp_path / "elsewhere").mkdir()
        (work / "stacks").symlink_to(tmp_path / "elsewhere")
    else:
        (work / "stacks").mkdir()
    assert stacks_folder(work, environ) == work / "stacks"


def test_stacks_that_came_with_a_model_are_not_used(tmp_path):
    environ = {"SAMEBITS_CACHE": str(tmp_path / "cache")}
    work = tmp_path / "model" / ".samebits"
    (work / "stacks").mkdir(parents=True)
    assert stacks_folder(work, environ) == work / "stacks"
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    assert stacks_folder(work, environ) == tmp_path / "cache" / "stacks"
