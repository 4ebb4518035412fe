"""The number of threads that a job computes with, and forks of a process that has several.

The number is part of a job, because it decides how sums are divided, and so their bits. It is set
after the fork of a job: the process of the stack has one thread, and no pool that a child would
miss.
"""

from __future__ import annotations

import ctypes

import torch

_PAUSE_SOFT = 1
"""omp_pause_soft: the runtime keeps its settings and gives up its threads."""


def use(number: int) -> None:
    """Compute with that many threads, whatever the machine's load and cores are.

    With several, torch adds to one element from several threads, in a random order
    (index_put_ with accumulate), unless it is told to be deterministic. Nothing else on the CPU
    changes by that: the fill of new memory, which belongs to it, is switched off.
    """
    torch.set_num_threads(number)
    if number > 1:
        # torch.use_deterministic_algorithms imports all of inductor first, which takes 4 s
        torch._C._set_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False


def recreate_pool() -> None:
    """Let this thread recreate torch's pool after a fork, which its first user does.

    Two threads that load a model may do it at once: "Invalid thread pool!" (pytorch PR #54895). It
    happened in 9 of 120 loads here.
    """
    torch.set_num_threads(torch.get_num_threads())


def release() -> bool:
    """End the pool of this thread before a fork; return False if that is not possible.

    A child inherits the pool without its threads and would wait for them forever. The next
    computation makes a new pool, here and in the child.
    """
    if torch.get_num_threads() == 1:
        return True
    try:
        pause = ctypes.CDLL(None).omp_pause_resource_all
    except (AttributeError, OSError, TypeError):  # another runtime, or none that is visible
        return False
    return bool(pause(_PAUSE_SOFT) == 0)
