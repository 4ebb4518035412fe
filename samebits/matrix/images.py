"""Packages for a model with an image or video processor: Pillow, and torchvision as most users have it.

Since 5.0, a processor computes with torchvision where it is installed, and with Pillow elsewhere. The
two give other pixels, so a stack without torchvision tells little to a user who has it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from samebits.base.checkpoint import json_of
from samebits.base.hub import is_reached
from samebits.records.question import keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.matrix.spec import Matrix, ModelSpec

PACKAGES = ("pillow", "torchvision")
"""What is added, the one that can be done without last."""
FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
_KEYS = frozenset(
    {
        "image_processor_type",
        "video_processor_type",
        "image_processor",
        "video_processor",
        # files of feature extractors, which older releases wrote for images
        "do_resize",
        "image_mean",
        "size",
    }
)


def with_image_packages(matrix: Matrix) -> Matrix:
    """Return the matrix with ``PACKAGES`` for its models with an image or video processor.

    A model, or a stack, that lists one of them has what it lists: ``packages: [pillow]`` is the way
    to Pillow alone.
    """
    listed = any(_names_one(stack.packages) for stack in matrix.stacks)
    models = tuple(
        model
        if listed or _names_one(model.packages) or not _has_images(model, Path(matrix.path).parent)
        else model.model_copy(update={"packages": (*model.packages, *PACKAGES), "images": PACKAGES})
        for model in matrix.models
    )
    return matrix.model_copy(update={"models": models})


def _names_one(packages: Iterable[str]) -> bool:
    return any(_name(package) in PACKAGES for package in packages)


def _name(package: str) -> str:
    try:
        return Requirement(package).name.lower()
    except InvalidRequirement:  # a path
        return ""


def _has_images(model: ModelSpec, folder: Path) -> bool:
    """Return True if a question asks for the model's processors, and one is for images or videos."""
    if not any(key.sees_images and model.asks(key.name) for key in keys()):
        return False
    if model.build is not None:
        return bool(_KEYS & (model.build.processor or {}).keys())
    return any(_declares_images(file) for file in _files(model, folder))


def _declares_images(file: Path) -> bool:
    content = json_of(file)
    return isinstance(content, dict) and bool(_KEYS & content.keys())


def _files(model: ModelSpec, folder: Path) -> Iterator[Path]:
    if model.path is not None:
        yield from (folder / model.path / name for name in FILES)
    else:
        yield from _hub_files(str(model.hub), model.revision)


def _hub_files(id: str, revision: str | None) -> Iterator[Path]:
    """Yield the files of a model on the hub, as far as it, or its cache, has them."""
    # an import of a second, which only models of the hub need
    from huggingface_hub import (  # noqa: PLC0415
        errors,
        hf_hub_download,
        try_to_load_from_cache,
    )

    for name in FILES:
        cached = try_to_load_from_cache(id, name, revision=revision)
        if isinstance(cached, str):
            yield Path(cached)
        elif cached is None and is_reached(id, revision):
            try:
                yield Path(hf_hub_download(id, name, revision=revision))
            except errors.EntryNotFoundError:
                continue
            except (errors.HfHubHTTPError, errors.HFValidationError, OSError):
                return
