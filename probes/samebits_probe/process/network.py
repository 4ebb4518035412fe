"""Refusal of network access for jobs that load from a folder.

An audit hook sees every call of Python's socket module, however it was imported, and cannot be
removed again. It does not see programs that a model's code starts.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REFUSAL = "samebits: a checkpoint in a folder needs no network, so this process has none"

_TOKENS = ("HF_TOKEN", "HF_TOKEN_PATH")
"""Variables that give access to the hub."""
_NAME_LOOKUPS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
_SENDS = ("socket.connect", "socket.sendto", "socket.sendmsg")


def needed(job: Mapping[str, Any]) -> bool:
    """Return True if the job loads a model from the hub."""
    model = job.get("model")
    return model is not None and not Path(model["source"]).is_dir()


def refuse() -> None:
    """Refuse all connections of this process and its forks, except to Unix sockets.

    Without a network nothing needs the token of the hub, so it is removed, too.
    """
    for name in _TOKENS:
        os.environ.pop(name, None)
    sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not event.startswith("socket."):
        return
    if event in _NAME_LOOKUPS or (event in _SENDS and arguments[0].family != socket.AF_UNIX):
        raise ConnectionRefusedError(errno.ECONNREFUSED, REFUSAL)
