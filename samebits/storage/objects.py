"""Objects of a shared store by their names: a folder, S3, GCS or Azure, through obstore."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from samebits.base.errors import SamebitsError
from samebits.base.redaction import without_credentials

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TIMEOUT = 60
"""Seconds that a request over the network may take."""
_CONNECT = 10
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
SCHEMES = ("file", "s3", "gs", "az", "abfss", "https")
"""The beginnings of an address of a store, before ``://``."""


class StoreAddressError(SamebitsError):
    """The address of a store cannot be used."""

    exit_code = 2


class Objects(Protocol):
    """A place for objects; any of its methods may raise, take long, or return other bytes."""

    def get(self, name: str) -> bytes:
        """Return an object. Raises FileNotFoundError."""
        ...

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        """Write an object; return False if there is one and it may not be replaced."""
        ...

    def has(self, name: str) -> bool:
        """Return True if there is an object of this name."""
        ...

    def below(self, prefix: str) -> list[str]:
        """Return the names below a prefix, which ends with a slash."""
        ...


class Obstore:
    """Objects of a store of the library obstore."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get(self, name: str) -> bytes:
        """Return an object."""
        import obstore  # noqa: PLC0415  a run without a store does not load it

        return bytes(obstore.get(self._store, name).bytes())

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        """Write an object in one step: of several writers of one name the first one wins."""
        import obstore  # noqa: PLC0415
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415

        mode: Literal["overwrite", "create"] = "overwrite" if replace else "create"
        try:
            obstore.put(self._store, name, content, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def has(self, name: str) -> bool:
        """Return True if there is an object of this name."""
        import obstore  # noqa: PLC0415

        try:
            obstore.head(self._store, name)
        except FileNotFoundError:
            return False
        return True

    def below(self, prefix: str) -> list[str]:
        """Return the names below a prefix."""
        import obstore  # noqa: PLC0415

        listed = obstore.list(self._store, prefix=prefix.rstrip("/")).collect()
        return sorted(str(entry["path"]) for entry in listed)


def check_address(address: str) -> None:
    """Refuse an address that holds credentials, as addresses are shown.

    Raises:
        StoreAddressError: it has a user, a password, a key or a signature.

    """
    if _folder(address) is not None or address == shown_address(address):
        return
    raise StoreAddressError(
        f"the address of the store has more than {shown_address(address)}: a user, a password, a key or "
        "a signature. Addresses are shown in reports. Write --store without that, and set the "
        "credentials in the environment: "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY "
        "or AZURE_STORAGE_SAS_TOKEN."
    )


def shown_address(address: str) -> str:
    """Return an address without user, password, query and fragment."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    return without_credentials(f"{scheme}://{place}")


def opened(address: str) -> Objects:
    """Return the objects at an address: a folder, or a URL such as ``s3://bucket/prefix``.

    Credentials and endpoints come from the environment, under the names that each service uses.
    A folder that does not exist is made.

    Raises:
        StoreAddressError: there is no such kind of store, or its address is incomplete or has
            credentials in it.

    """
    from obstore.store import LocalStore, from_url  # noqa: PLC0415

    check_address(address)
    folder = _folder(address)
    try:
        if folder is not None:
            return Obstore(LocalStore(folder, mkdir=True))
        return Obstore(
            from_url(
                address,
                client_options={
                    # a server on this machine or in this network, which the user named so
                    "allow_http": any(
                        os.environ.get(name, "").startswith("http:") for name in _ENDPOINTS
                    ),
                    "timeout": timedelta(seconds=TIMEOUT),
                    "connect_timeout": timedelta(seconds=_CONNECT),
                },
                retry_config={"max_retries": 0},  # samebits/storage/shared.py tries again
            )
        )
    except Exception as error:
        if isinstance(error, OSError) and folder is not None:
            raise
        raise StoreAddressError(
            f"the store {address} cannot be opened: {first_line(error)}. Write a folder, or an address "
            f"that begins with {', '.join(f'{scheme}://' for scheme in SCHEMES)}; keys and endpoints "
            "are read from the environment (AWS_…, GOOGLE_…, AZURE_…)."
        ) from error


def _folder(address: str) -> Path | None:
    """Return the folder that an address names; None for a service."""
    if address.startswith("file://"):
        return Path(address.removeprefix("file://")).absolute()
    return None if "://" in address else Path(address).absolute()


def first_line(error: BaseException) -> str:
    """Return the first line of an error, without the stack of a library."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return (text or type(error).__name__)[:300]
