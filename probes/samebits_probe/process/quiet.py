"""Logs and warnings that are held back while a check makes hundreds of them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_logs(level: int = logging.WARNING) -> Iterator[None]:
    """Hold back logs up to a level."""
    before = logging.root.manager.disable
    logging.disable(level)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def undisturbed(level: int = logging.WARNING) -> Iterator[None]:
    """Hold back warnings, and logs up to a level."""
    with without_logs(level), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def be_quiet() -> None:
    """Hold back warnings and logs in this process, which is a child for one question."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
