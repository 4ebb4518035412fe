"""Whether the hub can be reached."""

from __future__ import annotations

from functools import cache

_PATIENCE = 5.0
"""Seconds to wait for the hub's first answer."""


@cache
def is_reached(id_: str, revision: str | None) -> bool:
    """Return True if the hub answers, whatever it says; a download would try five times.

    It is asked once per process, and waits for five seconds at most.
    """
    from huggingface_hub import (  # noqa: PLC0415  takes a second, and only models of the hub need it
        constants,
        errors,
        get_hf_file_metadata,
        hf_hub_url,
    )

    if constants.HF_HUB_OFFLINE:  # to make the request that is then refused takes milliseconds
        return False
    try:
        url = hf_hub_url(id_, "config.json", revision=revision)
        get_hf_file_metadata(url, timeout=_PATIENCE)
    except (errors.HfHubHTTPError, errors.HFValidationError):
        return True
    except Exception:  # noqa: BLE001  which ones a connection raises depends on the library's release
        return False
    return True
