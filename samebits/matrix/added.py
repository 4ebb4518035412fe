"""Packages that the files of a model need, beside those of a stack: what its users have, too.

A release names them in an exception only, and so a stack without them tells little: a tokenizer of
sentencepiece does not load, an image processor computes other pixels (since 5.0 with torchvision where
it is installed, and with Pillow elsewhere), a feature extractor raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from samebits.base.checkpoint import ADAPTER, CONFIGS, json_of, mapped_classes
from samebits.base.hub import is_reached
from samebits.base.wheels import WHEELS, package_of
from samebits.matrix.imported import imported
from samebits.matrix.spec import Matrix, ModelSpec
from samebits.records.question import keys
from samebits_wire.vocabularies import PROCESSORS

PIECES = ("sentencepiece", "protobuf")
"""Read a tokenizer that is saved as pieces alone."""
IMAGES = ("pillow", "torchvision")
"""Compute images, the one that can be done without last."""
SOUNDS = {"LasrFeatureExtractor": ("librosa",)}
"""Class of a feature extractor -> what it imports where it computes (transformers 5.1.0 … 5.24.0:
models/lasr/feature_extraction_lasr.py)."""
OF_CLASSES = {
    "BertJapaneseTokenizer": ("fugashi", "ipadic", "unidic_lite"),
    "BioGptTokenizer": ("sacremoses",),
    "CpmAntTokenizer": ("rjieba",),
    "FlaubertTokenizer": ("sacremoses",),
    "FSMTTokenizer": ("sacremoses",),
    "GraniteSpeechFeatureExtractor": ("torchaudio",),
    "GraniteSpeechProcessor": ("torchaudio",),
    "HerbertTokenizer": ("sacremoses",),
    "MarkupLMFeatureExtractor": ("beautifulsoup4",),
    "MarkupLMProcessor": ("beautifulsoup4",),
    "MusicgenMelodyFeatureExtractor": ("torchaudio",),
    "ParakeetFeatureExtractor": ("librosa",),
    "RoFormerTokenizer": ("rjieba",),
    "SmolVLMProcessor": ("num2words",),
    "XLMTokenizer": ("sacremoses",),
}
"""Class of a processor or tokenizer -> what its module imports (transformers 4.57.6 … 5.24.0: ``import``,
``requires_backends`` and ``requires`` in models/)."""
OF_TYPES = {
    "deta": ("torchvision",),
    "higgs_audio_v2_tokenizer": ("torchaudio",),
    "sam3": ("torchvision",),
}
"""Type of a model -> what its module imports."""
MATCHING = ("scipy",)
"""Matches the objects that a model finds with those of its labels."""
OF_MASKS = frozenset(
    {"eomt", "eomt_dinov3", "mask2former", "maskformer", "oneformer", "videomt"}
)  # fmt: skip
"""Types of models that import it also when they are only loaded (transformers 4.57.6 … 5.24.0:
``MaskFormerLoss``, ``Mask2FormerLoss``, ``OneFormerLoss``, ``EomtLoss``)."""
OF_BOXES = frozenset(
    {
        "conditional_detr", "d_fine", "dab-detr", "deformable_detr", "deimv2", "deta", "detr",
        "grounding-dino", "lw_detr", "mm-grounding-dino", "rf_detr", "rt_detr", "rt_detr_v2",
        "table-transformer", "yolos",
    }
)  # fmt: skip
"""Types of models whose loss needs it, and Pillow, without which the module of losses has no
function for the corners of boxes (transformers 4.57.6 … 5.24.0: loss/loss_for_object_detection.py)."""
TOWERS = ("timm", "torchvision")
"""Make a tower of timm, which imports torchvision; each is added unless it is listed."""
OF_TIMM = frozenset({"gemma3n_vision", "timm_backbone", "timm_wrapper"})
"""Types of parts that are such a tower."""
LOADS = ("accelerate",)
WITHOUT_IT = frozenset({"4.51.0"})
"""Releases that load no model without it: ``init_empty_weights`` is not defined there (modeling_utils.py)."""
ADAPTERS = ("peft",)
"""Puts an adapter that lies beside a model into it: without it a load leaves the adapter out and says nothing."""
PIECE_FILES = (
    "tokenizer.model", "spiece.model", "spm.model", "sentencepiece.bpe.model", "source.spm",
)  # fmt: skip
"""Names of files of sentencepiece (``VOCAB_FILES_NAMES`` in the library's tokenizers)."""
FILES = PROCESSORS
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


def with_added_packages(matrix: Matrix, of_hub: Collection[str]) -> Matrix:
    """Return the matrix with the packages that the files of its models need.

    Of those on the hub only the models ``of_hub``: each costs requests, in every shard of a run.

    A model, or a stack, that lists one of a group has what it lists: ``packages: [pillow]`` is the way
    to Pillow alone.
    """
    of_stacks = {_name(package) for stack in matrix.stacks for package in stack.packages}
    folder, asked = Path(matrix.path).parent, {*of_hub}
    loads = [LOADS] if WITHOUT_IT & {stack.transformers for stack in matrix.stacks} else []
    models = (
        _with_added(model, folder, of_stacks, loads)
        if model.hub is None or model.name in asked
        else model
        for model in matrix.models
    )
    return matrix.model_copy(update={"models": tuple(models)})


def _with_added(
    model: ModelSpec, folder: Path, of_stacks: set[str], loads: Sequence[tuple[str, ...]]
) -> ModelSpec:
    listed = of_stacks | {*map(_name, model.packages)}
    groups = (*_needed(model, folder), *loads)
    needed = (group for group in groups if listed.isdisjoint(group))
    added = tuple(dict.fromkeys(package for group in needed for package in group))
    if not added:
        return model
    return model.model_copy(update={"packages": (*model.packages, *added), "added": added})


def _name(package: str) -> str:
    try:
        return Requirement(package).name.lower()
    except InvalidRequirement:  # a path
        return ""


def _needed(model: ModelSpec, folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the groups of packages that the files of a model need."""
    if model.build is None and _has_pieces_alone(model, folder):
        yield PIECES
    if model.build is None and any(_contents(model, folder, (ADAPTER,))):
        yield ADAPTERS
    yield from ((package,) for package in _of_own_code(model, folder))
    config = _config(model, folder)
    model_type = str(config.get("model_type", ""))
    if _has_tower_of_timm(config):
        yield from ((package,) for package in TOWERS)
    has_boxes = model_type in OF_BOXES and model.asks("training")
    if has_boxes or model_type in OF_MASKS:
        yield MATCHING
    if has_boxes:
        yield IMAGES[:1]
    yield from ((package,) for package in OF_TYPES.get(model_type, ()))
    declared = [*_declared(model, folder)]
    yield from ((package,) for package in _of_classes(model, folder, declared))
    # a question asks for its processors: without one, nothing of them is loaded
    if not any(key.sees_images and model.asks(key.name) for key in keys()):
        return
    for content in declared:
        if packages := SOUNDS.get(content.get("feature_extractor_type", "")):
            yield packages
    if any(_KEYS & content.keys() for content in declared):
        yield IMAGES


def _of_classes(
    model: ModelSpec, folder: Path, declared: Iterable[dict[str, Any]]
) -> Iterator[str]:
    """Yield the packages of the classes that the files of a model name."""
    if model.build is not None:
        return
    contents = (*declared, *_contents(model, folder, ("tokenizer_config.json",)))
    keys = ("processor_class", "feature_extractor_type", "tokenizer_class")
    for name in dict.fromkeys(str(content.get(key)) for content in contents for key in keys):
        yield from OF_CLASSES.get(name, ())


def _of_own_code(model: ModelSpec, folder: Path) -> Iterator[str]:
    """Yield the packages that the code beside a checkpoint imports, of those that every platform can install."""
    if model.build is not None or not model.trust_remote_code:
        return

    def file_of(module: str) -> Path | None:
        return next(iter(_files(model, folder, (f"{module.replace('.', '/')}.py",))), None)

    maps = (content.get("auto_map") for content in _contents(model, folder, CONFIGS))
    classes = (name for auto_map in maps for name in mapped_classes(auto_map))
    modules = (name.rpartition(".")[0] for name in classes if "--" not in name)
    yield from sorted(WHEELS & {*map(package_of, imported(modules, file_of))})


def _config(model: ModelSpec, folder: Path) -> dict[str, Any]:
    """Return the config of a model, of a recipe what it gives; empty if it cannot be read."""
    if model.build is not None:
        return {**model.build.config, "model_type": model.build.architecture}
    name = "config.json"
    file = (
        next(_hub_files(model, (name,)), None) if model.path is None else folder / model.path / name
    )
    content = json_of(file) if file is not None else None
    return content if isinstance(content, dict) else {}


def _has_tower_of_timm(config: object) -> bool:
    """Return True if a config, or one inside it, is of a tower that timm makes."""
    if not isinstance(config, dict):
        return False
    is_one = str(config.get("model_type")) in OF_TIMM or config.get("use_timm_backbone") is True
    return is_one or any(map(_has_tower_of_timm, config.values()))


def _has_pieces_alone(model: ModelSpec, folder: Path) -> bool:
    """Return True if a tokenizer has pieces and no tokenizer.json, which needs no package."""
    if model.path is None:
        first = next(_hub_files(model, ("tokenizer.json", *PIECE_FILES)), None)
        return first is not None and first.name != "tokenizer.json"
    own = folder / model.path
    return not (own / "tokenizer.json").exists() and any(
        (own / name).exists() for name in PIECE_FILES
    )


def _declared(model: ModelSpec, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the content of the files that declare processors."""
    if model.build is not None:
        yield model.build.processor or {}
        return
    yield from _contents(model, folder, FILES)


def _contents(model: ModelSpec, folder: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the content of the files that are there."""
    for file in _files(model, folder, names):
        content = json_of(file)
        if isinstance(content, dict):
            yield content


def _files(model: ModelSpec, folder: Path, names: Sequence[str]) -> Iterable[Path]:
    """Return the files of a model that are there, or on the hub."""
    if model.path is None:
        return _hub_files(model, names)
    return filter(Path.is_file, (folder / model.path / name for name in names))


def _hub_files(model: ModelSpec, names: Iterable[str]) -> Iterator[Path]:
    """Yield the files of a model on the hub, as far as it, or its cache, has them."""
    # an import of a second, which only models of the hub need
    from huggingface_hub import (  # noqa: PLC0415
        errors,
        hf_hub_download,
        try_to_load_from_cache,
    )

    id, revision = str(model.hub), model.revision
    for name in names:
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
