"""The guard of tests/conftest.py works: no test here could start a process without saying so."""

import asyncio
import os
import subprocess
import sys

import pytest

from samebits.stacks.installer import Commands
from samebits.stacks.process import start_process
from tests.support.no_processes import STARTERS

REFUSED = pytest.fail.Exception
NOTHING = [sys.executable, "-c", ""]


def test_the_guard_refuses_every_way_to_start_a_process():
    for module, name in STARTERS:
        with pytest.raises(REFUSED, match=f"{name} was called"):
            getattr(module, name)()


def test_the_guard_is_not_caught_by_code_that_catches_errors():
    assert not issubclass(REFUSED, Exception)


@pytest.mark.parametrize("start", [subprocess.run, subprocess.check_output, subprocess.call])
def test_what_is_built_on_popen_is_refused_too(start):
    with pytest.raises(REFUSED, match="Popen"):
        start(NOTHING)


def test_the_host_s_own_starters_are_refused(tmp_path):
    with pytest.raises(REFUSED, match="Popen"):
        Commands()(NOTHING, "", os.environ)
    with pytest.raises(REFUSED, match="create_subprocess_exec"):
        asyncio.run(start_process(sys.executable, os.environ, tmp_path / "log"))


@pytest.mark.processes
def test_a_test_that_says_so_may_start_one():
    assert Commands()([sys.executable, "-c", "print(input())"], "a", os.environ).stdout == "a\n"
