"""Unit tests start no process and reach no network: a test that does says so with a mark."""

import signal
import socket

import pytest
from hypothesis import settings

import samebits.questions  # noqa: F401  whose records captures and reports hold
from tests.support.added_signal import toy  # noqa: F401  a fixture
from tests.support.builders import Memory
from tests.support.no_processes import MARKS, STARTERS, only_this_machine, refusal

settings.register_profile("samebits", deadline=None)  # a busy machine is no failure
settings.load_profile("samebits")

# a shell starts what it puts behind `&` with SIGINT ignored, and programs that tests start would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_processes(request, monkeypatch):
    """Make it impossible to start a process or to reach the network, except in tests that are marked for it."""
    if any(request.node.get_closest_marker(mark) for mark in MARKS):
        return
    for module, name in STARTERS:
        monkeypatch.setattr(module, name, refusal(module, name))
    monkeypatch.setattr(socket, "getaddrinfo", only_this_machine)


@pytest.fixture
def memory():
    """Return a store of tensors that is empty, in memory."""
    return Memory()
