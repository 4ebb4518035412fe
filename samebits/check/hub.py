"""What is read of the hub before a run: config.json, and the commit that a revision means.

Everything else is downloaded inside the stacks, by the release that loads it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from samebits.base.checkpoint import CONFIGS, CUSTOM_GENERATE
from samebits.base.hub import is_reached

_COMMIT = re.compile(r"[0-9a-f]{40}")


class HubError(Exception):
    """A file of the hub cannot be had; the message says why, and what to change."""

    def __init__(self, message: str, *, is_unknown: bool = False, is_offline: bool = False) -> None:
        super().__init__(message)
        self.is_offline = is_offline
        """True if the hub cannot be reached."""
        self.is_unknown = is_unknown
        """True if the hub has no such model."""


class HubFile(NamedTuple):
    """A downloaded file, and the commit that it belongs to."""

    path: Path
    commit: str | None


def config_file(id_: str, revision: str | None) -> HubFile:
    """Return a model's config.json, from the cache or from the hub. Raises HubError."""
    # an import of a second, which only models of the hub need
    from huggingface_hub import errors, hf_hub_download  # noqa: PLC0415

    try:
        reached = is_reached(id_, revision)
        path = Path(
            hf_hub_download(id_, "config.json", revision=revision, local_files_only=not reached)
        )
    except errors.GatedRepoError as error:
        msg = f"the model is gated: ask for access at its page on the hub, then log in {_LOGIN}"
        raise HubError(msg) from error
    except errors.RevisionNotFoundError as error:
        msg = f"the model has no revision {revision}: write a branch, a tag or a commit after @"
        raise HubError(msg) from error
    except errors.RepositoryNotFoundError as error:
        msg = f"the hub has no such model, or it is private: check the id, or log in {_LOGIN}"
        raise HubError(msg, is_unknown=True) from error
    except errors.LocalEntryNotFoundError as error:
        msg = (
            "the hub cannot be reached, and the model is not in its cache: check the network, "
            "HF_HUB_OFFLINE and HF_ENDPOINT, or name a folder"
        )
        raise HubError(msg, is_offline=True) from error
    except errors.EntryNotFoundError as error:
        msg = "the model has no config.json: it is no checkpoint of transformers"
        raise HubError(msg) from error
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise HubError(f"the hub gave no config.json: {reason}") from error
    # the cache keeps each file below snapshots/COMMIT
    folder = path.parent.name
    return HubFile(path, folder if _COMMIT.fullmatch(folder) else None)


def code_folder(id_: str, revision: str | None) -> Path | None:
    """Return a folder with the Python files of a model; None if they cannot be had."""
    return _folder(id_, revision, ("*.py",))


def settings_folder(id_: str, revision: str | None) -> Path | None:
    """Return a folder with the files that say whether a model has code; None if there is none."""
    return _folder(id_, revision, (*CONFIGS, CUSTOM_GENERATE))


def whole_folder(id_: str, revision: str | None) -> Path | None:
    """Return a folder with the files of a model that transformers loads; None if they cannot be had."""
    return _folder(id_, revision, _LOADED)


def _folder(id_: str, revision: str | None, patterns: tuple[str, ...]) -> Path | None:
    from huggingface_hub import errors, snapshot_download  # noqa: PLC0415

    try:
        return Path(snapshot_download(id_, revision=revision, allow_patterns=list(patterns)))
    except (
        errors.HfHubHTTPError,
        errors.HFValidationError,
        errors.LocalEntryNotFoundError,
        OSError,
    ):
        return None


_LOADED = ("*.json", "*.safetensors", "*.py", "*.model", "*.txt", "*.jinja")
_LOGIN = "(hf auth login, or HF_TOKEN)"
