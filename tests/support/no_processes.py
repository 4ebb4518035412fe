"""Every way to start a process or to reach the network, and what stands in its place in a unit test."""

import asyncio
import os
import socket
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


OF_THIS_MACHINE = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "", None)
ADDRESSES = socket.getaddrinfo


def only_this_machine(host, *more, **options):
    """Stand for socket.getaddrinfo; fail the test for the name of another machine."""
    name = host.decode() if isinstance(host, bytes) else host
    if name not in OF_THIS_MACHINE:
        pytest.fail(f"{name} was looked up: pass a fake, or mark the test with one of {MARKS}")
    return ADDRESSES(host, *more, **options)
