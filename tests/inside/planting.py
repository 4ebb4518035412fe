"""Plants that last as long as a check, which has a process of its own, or as long as a ``with``."""

import functools
from unittest import mock


def plant(owner, name, change):
    """Return a patch by which ``owner.name`` calls ``change`` with what it was, in front of its arguments."""
    plain = getattr(owner, name)

    @functools.wraps(plain)  # generate() reads signatures
    def changed(*args, **kwargs):
        return change(plain, *args, **kwargs)

    return mock.patch.object(owner, name, changed)


def fed_otherwise(model, change):
    """Let ``change`` have what each step of ``generate()`` is fed, beside all tokens; return the model."""

    def prepare(plain, ids, **kwargs):
        fed = plain(ids, **kwargs)
        change(fed, ids)
        return fed

    plant(model, "prepare_inputs_for_generation", prepare).start()
    return model
