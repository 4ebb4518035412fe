"""Logs that are held back while a check makes hundreds of them."""

from __future__ import annotations

import logging
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
