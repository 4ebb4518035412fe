"""Every way to start a process, and what stands in its place in a unit test."""

import asyncio
import os
import subprocess

import pytest

STARTERS = (
    (subprocess, "Popen"),
    (asyncio, "create_subprocess_exec"),
    (asyncio, "create_subprocess_shell"),
    (os, "fork"),
)
MARKS = ("processes", "stacks")


def refusal(module, name):
    """Return a function that fails the test, even where the code under test catches errors."""

    def refuse(*_, **__):
        called = f"{module.__name__}.{name}"
        pytest.fail(f"{called} was called: pass a fake, or mark the test with one of {MARKS}")

    return refuse
