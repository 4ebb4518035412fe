"""A clock that somebody sets back while a run goes on."""

import itertools
import time

HOUR = 3600


def set_back_again_and_again(templates):
    """Let every look at the clock be an hour before the last one, if the bench asks for that."""
    if not (templates / "clock").exists():
        return
    looks, began = itertools.count(), time.time_ns()
    time.time_ns = lambda: began - next(looks) * HOUR * 10**9
    time.time = lambda: time.time_ns() / 1e9
