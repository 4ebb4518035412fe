"""A model that the command line names: a folder, or an id on the hub; and what its config says."""

from __future__ import annotations

import re
import shlex
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple

from samebits.base.checkpoint import ADAPTER, OwnCode, json_of, own_code
from samebits.base.digests import digest_of
from samebits.base.errors import nearest, shown
from samebits.base.homes import expanded
from samebits.check import hub
from samebits.matrix.checkpoint import GGUF, CheckpointError, read_config
from samebits.matrix.known import near
from samebits.matrix.values import NAME_LENGTH
from samebits_wire.vocabularies import has_no_model

TYPE = "type:"
"""Begins a word that names a model_type: the run makes a tiny model of it."""
_VARIANT = "#"
"""Stands before the number of a variant of the tiny model's config."""
_NUMBER = re.compile(r"[1-9][0-9]?", re.ASCII)
_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?(@[^@\s]+)?", re.ASCII)
_BARE = re.compile(r"[A-Za-z0-9_][\w-]*", re.ASCII)
"""A name without an owner: the hub has no model of it, apart from some old ones under a second name."""
_SMALL = ("bfloat16", "float16")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAMED = 5
_ENDS_OF_PATHS = ("/", ".yaml", ".yml", ".gguf", ".safetensors")
_WEIGHTS = (".safetensors", ".bin", ".h5", ".msgpack")
NO_MODEL = "a tokenizer or processors, and no model"


class NamedModel(NamedTuple):
    """A model and what its config.json says."""

    name: str
    """A name for reports and for matrix.yaml."""
    config: dict[str, Any]
    path: str | None = None
    """Its folder as it was typed; None for a model on the hub."""
    hub: str | None = None
    revision: str | None = None
    """The commit, if the hub or its cache says it; else the revision that was asked for."""
    size: int | None = None
    """Bytes of its files; None if they are not on this machine."""
    code: OwnCode = OwnCode()
    """The Python code that comes with it."""
    tiny: str = ""
    """The model_type of which the run makes a tiny model; '' for a model that is there."""
    config_variant: int = 0
    """Which values the switches of the tiny model's config have; 0: those of the config as it is."""

    @property
    def typed(self) -> str:
        """The model as one word of a command line."""
        if self.tiny:
            number = f"{_VARIANT}{self.config_variant}" if self.config_variant else ""
            return f"{TYPE}{self.tiny}{number}"
        if self.hub is None:
            return str(self.path)
        return f"{self.hub}@{self.revision}" if self.revision else self.hub

    @property
    def has_code(self) -> bool:
        """True if Python code comes with the checkpoint."""
        return bool(self.code.auto_maps) or self.code.custom_generate

    @property
    def loads_code(self) -> bool:
        """True if a config names that code, so that a load without it may be another model."""
        return bool(self.code.auto_maps)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes to compare it in: a small one that config.json names, and float32.

        5.x loads the former by default. The latter shows what the former's rounding hides.
        """
        configs = (self.config, self.config.get("text_config"))
        named = (
            config.get(key)
            for config in configs
            if isinstance(config, dict)
            for key in ("dtype", "torch_dtype")
        )
        return next(((name, "float32") for name in named if name in _SMALL), ())

    @property
    def saved_with(self) -> str | None:
        """The release of transformers that saved it; None if config.json does not say."""
        version = self.config.get("transformers_version")
        return version if isinstance(version, str) else None

    @property
    def kind(self) -> str:
        """Its class and model_type, as far as config.json says."""
        if self.tiny:
            number = f", variant {self.config_variant} of its config" if self.config_variant else ""
            return f"a tiny model that the run makes ({self.tiny}{number})"
        listed = self.config.get("architectures")
        classes = [str(name) for name in listed] if isinstance(listed, list) else []
        model_type = self.config.get("model_type")
        if not self.config and self.path is not None:
            return NO_MODEL
        words = [", ".join(classes), f"({model_type})" if model_type else ""]
        kind = " ".join(filter(None, words)) or "class not known"
        return f"{kind}, with an adapter" if self.has_adapter else kind

    @property
    def has_adapter(self) -> bool:
        """True if its folder has an adapter, too."""
        return self.path is not None and (Path(self.path) / ADAPTER).is_file()


def tiny_model(text: str) -> NamedModel | None:
    """Return the model of a word such as type:llama or type:llama#2; None for any other word.

    Raises:
        CheckpointError: the number of a variant of its config is none.

    """
    named = text.removeprefix(TYPE)
    if named in {text, ""}:
        return None
    name, mark, number = named.partition(_VARIANT)
    if mark and not _NUMBER.fullmatch(number):
        msg = f"{text}: after {_VARIANT} comes the number of a variant of the config, 1 to 99, as in {TYPE}{name}{_VARIANT}2"
        raise CheckpointError(msg)
    return NamedModel(fitting_name(named), {}, tiny=name, config_variant=int(number or 0))


def read_model(text: str, *, offline: bool = False) -> NamedModel:
    """Return the model that a word of the command line names: a folder, or an id on the hub.

    A folder comes first, as in from_pretrained. With ``offline``, a model on the hub may do without
    its config if the hub cannot be reached.

    Raises:
        CheckpointError: there is no such model, or its config cannot be read.

    """
    path = expanded(text)
    if not path.exists() and not offline and _BARE.fullmatch(text):
        raise CheckpointError(_no_folder(text))
    looks_like_path = text.startswith(("/", ".", "~")) or text.endswith(_ENDS_OF_PATHS)
    looks_like_path = looks_like_path or "\\" in text
    if path.exists() or looks_like_path or not _HUB_ID.fullmatch(text):
        return read_folder(path)
    return _of_the_hub(text, offline=offline)


def read_folder(path: Path) -> NamedModel:
    """Return the model in a folder. Raises CheckpointError."""
    _check_folder(path)
    files = [file for file in path.iterdir() if file.is_file()]
    return NamedModel(
        name=fitting_name(_own_name(path.absolute())),
        config={} if has_no_model(path) else read_config(path / "config.json"),
        path=str(path),
        size=sum(file.stat().st_size for file in files if file.suffix in _WEIGHTS),
        code=own_code(path),
    )


def _own_name(path: Path) -> str:
    """Return the name of a model's folder; of a snapshot in the cache of the hub, which a commit names, that of the model."""
    cache = path.parent.parent.name
    if path.parent.name == "snapshots" and cache.startswith("models--"):
        return cache.rpartition("--")[2]
    return path.name


def not_run(code: OwnCode) -> str:
    """Return which code of a model nobody trusts, for the terminal; '' if it has none."""
    return f"code that is not run without --trust-remote-code: {code.places}" if code.places else ""


def fitting_name(text: str) -> str:
    """Return a name that matrix.yaml allows, as close to a text as possible.

    A text with letters that such a name cannot have gets digits of its own.
    """
    decomposed = unicodedata.normalize("NFKD", text)
    letters = "".join(c for c in decomposed if not unicodedata.combining(c))
    name = _NOT_IN_NAMES.sub("-", letters).strip("-._")[:NAME_LENGTH] or "model"
    if text.isascii():
        return name
    return with_digits(name, unicodedata.normalize("NFC", text))


def with_digits(name: str, text: str) -> str:
    """Return a name with digits of a text, which tell it from others of the same name."""
    return f"{name[: NAME_LENGTH - 7].rstrip('-._')}-{digest_of(text)[:6]}"


def _of_the_hub(text: str, *, offline: bool) -> NamedModel:
    id_, _, revision = text.partition("@")
    name = fitting_name(id_.rpartition("/")[2])
    try:
        file = hub.config_file(id_, revision or None)
    except hub.HubError as error:
        if offline and error.is_offline:
            return NamedModel(name, {}, hub=id_, revision=revision or None)
        on_disk = ""
        if error.is_unknown or error.is_offline:
            on_disk = (
                f"there is no folder {text} here{_near_folder(Path(text))}\nAs an id of the hub: "
            )
        raise CheckpointError(
            f"{on_disk}{error}" if on_disk else f"{shown(text)}: {error}"
        ) from error
    config, commit = read_config(file.path), file.commit or revision or None
    folder = hub.settings_folder(id_, commit) or file.path.parent
    return NamedModel(name, config, hub=id_, revision=commit, code=own_code(folder))


def _no_folder(name: str) -> str:
    """Return why a bare name is no model; the hub is not asked, which takes half a minute offline."""
    hint = _near_folder(Path(name)) or "."
    return (
        f"there is no folder {name} here{hint} For a model of the hub write its owner, too: "
        f"org/{name}"
    )


def _check_folder(path: Path) -> None:
    """Raise CheckpointError unless a path is a folder with a config.json, a tokenizer or processors."""
    if not path.exists():
        parent = path.absolute().parent
        siblings = [entry.name for entry in parent.iterdir()] if parent.is_dir() else []
        hint = nearest(path.name, siblings) if siblings else f"there is no folder {parent}, either"
        raise CheckpointError(f"{shown(str(path))} does not exist: {hint}")
    if not path.is_dir():
        raise CheckpointError(_file(path))
    # what is there and is no file has a message of its own
    if not (path / "config.json").exists() and not has_no_model(path):
        raise CheckpointError(_without_config(path))


def _file(path: Path) -> str:
    """Return what to name in place of a file."""
    if path.suffix in (".yaml", ".yml"):
        return f"{path} is a matrix and no model: samebits matrix --matrix {shlex.quote(str(path))}"
    if path.suffix == ".gguf":
        return f"{path}: {GGUF}"
    return f"{shown(str(path))} is a file: name the folder that contains it, {path.parent}"


def _near_folder(path: Path) -> str:
    """Return the end of a sentence: the folder beside ``path`` that was likely meant, if any."""
    parent = path.absolute().parent
    folders = [p.name for p in parent.iterdir() if p.is_dir()] if parent.is_dir() else []
    return near(path.name, folders)


_OTHER_LIBRARIES = {
    "gliner_config.json": "gliner",
    "open_clip_config.json": "open_clip",
    "model_index.json": "diffusers",
    "params.json": "its maker's own code",
    "hyperparams.yaml": "speechbrain",
}
"""File of a checkpoint that another library loads -> that library."""


_OF_TASKS = {
    "CAUSAL_LM": "ForCausalLM",
    "SEQ_2_SEQ_LM": "ForSeq2SeqLM",
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
    "FEATURE_EXTRACTION": "ForFeatureExtraction",
}
"""``task_type`` of adapter_config.json -> the end of the class of peft that loads it; without one, AutoPeftModel does."""


def _adapter_alone(path: Path) -> str:
    """Return that a folder holds an adapter alone, and the commands that make a model of it."""
    settings = json_of(path / ADAPTER)
    task = settings.get("task_type") if isinstance(settings, dict) else None
    name = f"AutoPeftModel{_OF_TASKS.get(str(task), '')}"
    folder, merged = (shlex.quote(f"{path}{end}") for end in ("", "-merged"))
    code = (
        f"import sys; from peft import {name} as M; "
        "M.from_pretrained(sys.argv[1], torch_dtype='auto').merge_and_unload().save_pretrained(sys.argv[2])"
    )
    refused = (
        f"{shown(str(path))} holds an adapter and not a model: only samebits check joins it with its base. Else merge "
        "it into its base, where peft is installed, and name the folder of the whole:"
    )
    lines = [refused, f'  python -c "{code}" {folder} {merged}']
    if tokenizers := sorted(file.name for file in path.glob("*token*") if file.is_file()):
        files = " ".join(shlex.quote(str(path / name)) for name in tokenizers)
        lines.append(f"  cp {files} {merged}")
    return "\n".join(lines)


def _without_config(path: Path) -> str:
    """Return what is wrong with a folder without config.json, and which folder is probably meant."""
    fault = f"{shown(str(path))} contains no config.json, so it is no checkpoint of transformers"
    if (path / ADAPTER).is_file():
        return _adapter_alone(path)
    if ggufs := sorted(file.name for file in path.glob("*.gguf")):
        return f"{path} contains only {ggufs[0]}. {GGUF}"
    library = next((n for file, n in _OTHER_LIBRARIES.items() if (path / file).is_file()), None)
    if library is not None:
        fault = f"{fault}. It is one of {library}, which is not compared; what transformers loads can be"
    below = ("*/config.json", "snapshots/*/config.json")  # the latter is the hub's cache
    folders = sorted(file.parent for pattern in below for file in path.glob(pattern))
    if not folders:
        return f"{fault}: name a folder that save_pretrained wrote"
    listed = ", ".join(map(str, folders[:_MAX_NAMED]))
    more = " …" if len(folders) > _MAX_NAMED else ""
    return f"{fault}, but folders in it are: name one of {listed}{more}"
