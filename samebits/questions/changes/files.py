"""What files of transformers are for: which of them a model can reach, and what makes them run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from samebits.questions.changes.records import Area, Why
    from samebits.questions.changes.release import Release

_OPTIONAL = (
    "commands/",
    "distributed/",
    "integrations/",
    "kernels/",
    "modeling_flash_attention_utils",
    "modeling_gguf_pytorch_utils",
    "onnx/",
    "pipelines/",
    "quantizers/",
    "sagemaker/",
    "utils/dummy_",
    "utils/notebook",
    "utils/quantization_config",
)
"""Starts of files that need a quantized checkpoint, a device or another package."""
_DEVICES = re.compile(
    r"distributed/|integrations/(hub_kernels|tensor_parallel|fsdp|deepspeed|mxfp4|accelerate)"
)
"""Starts of files whose other branches need several devices or kernels, whatever else of them runs."""
_OF_DEVICES = re.compile(
    r"(?i)(^|[._])(tp|ep|fsdp|ddp|tpu|xla|cuda)_|distributed?(_|$)|parallel(_|ize|$)|device_mesh|deepspeed"
    r"|kernel|caching_allocator"
)
"""In names of what needs several devices, an accelerator or its kernels."""
_OF_ADAPTERS = re.compile(r"integrations/peft|quantizers/")
"""Starts of files whose rest needs an adapter and its package, or a quantized checkpoint."""
_OF_OWN_CODE = re.compile(r"dynamic_module_utils")
"""Starts of files whose rest runs for a config with ``auto_map`` only."""
_OF_HUB = re.compile(r"push_to_hub|init_hf_repo|model_card|_upload_")
"""In names of what writes to the hub."""
_OF_DOCS = re.compile(r"(?i)docstring|_for_doc$")
"""In names of what writes docstrings."""
_MESSAGES = (
    "__init__",
    "debug_utils",
    "dependency_versions",
    "integrations/deepspeed",
    "integrations/integration_utils",
    "model_debugging_utils",
    "modelcard",
    "safetensors_conversion",
    "testing_utils",
    "utils/auto_docstring",
    "utils/args_doc",
    "utils/doc.py",
    "utils/import_utils",
    "utils/logging",
    "utils/versions",
    "utils/deprecation",
    "utils/hub",
)
"""Starts of files that import, document, log, download and report."""
_FRAMEWORKS = re.compile(r"(_tf_|_flax_|_tf\.py|_flax\.py)|(tf|flax)_(utils|logits)")
_MODEL = re.compile(r"models/(?!auto/)([^/]+)/")


class Kind(NamedTuple):
    """Files with one purpose."""

    area: Area
    files: re.Pattern[str]
    questions: tuple[str, ...] = ()
    """Those that run them."""


KINDS = (
    Kind(
        "image",
        re.compile(
            r"((image|video|audio)_|feature_extraction|processing_utils)"
            r"|models/[^/]+/(image_|video_|feature_extraction_|processing_)"
        ),
        ("processors",),
    ),
    Kind(
        "text",
        re.compile(
            r"(tokenization_|convert_slow_tok|utils/(chat_|sentencepiece))|models/[^/]+/tokenization_"
        ),
        ("texts",),
    ),
    Kind(
        "training",
        re.compile(r"(trainer|training_args|optimization|hyperparameter_search|data/|loss/)"),
        ("training", "trainer"),
    ),
    Kind("generation", re.compile(r"(generation/|cache_utils)"), ("usage",)),
    Kind("model", re.compile(r"models/(?!auto/)|masking_utils|modeling_rope|activations")),
)
_ATTENTION = re.compile(r"(?i)eager|flex|flash")
"""In names of what another implementation of attention than the default one runs."""
_SAVES = re.compile(r"(^|\.)_?(save|push_to|revert)")
_SEES = re.compile(r"(?i)image|vision|pixel|video|audio|speech|placeholder")
"""In names of what a model does with images, videos and sounds."""
_INPUTS: tuple[Area, ...] = ("image", "text")
"""Areas that a model may lack: it then has no processor or no tokenizer."""


def kind_of(file: str) -> Kind | None:
    """Return the purpose of a file; None if it has no one."""
    return next((kind for kind in KINDS if kind.files.match(file)), None)


def is_of_model(file: str) -> bool:
    """Return True for a file in the folder of a model."""
    return _MODEL.match(file) is not None


def never_run(file: str, name: str) -> Why | None:
    """Return why no run on one CPU without a network enters a definition; None if one may."""
    if _OF_DOCS.search(name):
        return "message"
    if is_of_model(file):
        return None
    if _DEVICES.match(file) or _OF_DEVICES.search(name) or _OF_ADAPTERS.match(file):
        return "package"
    if _OF_OWN_CODE.match(file):
        return "config"
    return "message" if _OF_HUB.search(name) else None


def makes_modules(file: str) -> bool:
    """Return True for a file whose classes are parts of models, which a load makes."""
    return is_of_model(file) or file == "modeling_layers.py"


def is_of_generation(file: str) -> bool:
    """Return True for a file of generate() alone, which a model that does not generate runs at most to be built."""
    return file.startswith("generation/")


def is_run_by(file: str, questions: Collection[str]) -> bool:
    """Return True if one of some questions runs such files."""
    kind = kind_of(file)
    return kind is not None and bool(set(kind.questions) & set(questions))


def area_of(file: str, name: str) -> tuple[Area, tuple[str, ...]]:
    """Return what a definition serves, and the questions that run such code."""
    if _ATTENTION.search(name):
        return "attention", ()
    if _SAVES.search(name):
        return "saving", ("crossings", "usage")
    if is_of_model(file) and _SEES.search(name):
        return "image", ()
    kind = kind_of(file)
    return (kind.area, kind.questions) if kind else ("other", ())


def reasons(
    release: Release, closure: Iterable[str], ran: Mapping[str, object], off: Collection[str]
) -> dict[str, Why]:
    """Return why a model cannot reach files that it imports, those of which something ran excepted.

    ``off``: the questions that it is not asked.
    """
    own = _own_folders(release, ran)
    used = {kind.area for file in ran if (kind := kind_of(file))}
    lacks = {
        kind.area
        for kind in KINDS
        if kind.area in _INPUTS and kind.area not in used and not set(kind.questions) & set(off)
    }
    return {
        file: why
        for file in closure
        if (why := _reason(file, own, lacks, has_run=file in ran)) is not None
    }


def _reason(file: str, own: set[str], lacks: set[Area], *, has_run: bool) -> Why | None:
    if file.startswith(_MESSAGES):
        return "message"
    if has_run:
        return None
    if _FRAMEWORKS.search(file):
        return "framework"
    if file.startswith(_OPTIONAL):
        return "package"
    model = _MODEL.match(file)
    if model and model[1] not in own:
        return "family"
    kind = kind_of(file)
    return "input" if kind and kind.area in lacks else None


def _own_folders(release: Release, ran: Iterable[str]) -> set[str]:
    """Return the folders of models whose files ran, and of those that these import."""
    files = [file for file in ran if _MODEL.match(file)]
    imported = release.closure(files, lambda file: _MODEL.match(file) is not None)
    return set(_folders(imported))


def _folders(files: Iterable[str]) -> Iterator[str]:
    for file in files:
        if model := _MODEL.match(file):
            yield model[1]
