"""Tiny seeded checkpoints, made from a recipe with the classes of this stack.

The entry point is ``build(job, out_dir)``, where ``job["recipe"]`` is the JSON of a recipe:
    architecture, auto, config, config_variant, head, seed, gain, tokenizer, processor.

It writes these files to a folder next to ``out_dir``, which is then renamed:
    out_dir/config.json, generation_config.json   as the stack's save_pretrained writes them
    out_dir/model.safetensors                      the stack's names and shapes, our values,
                                                   aligned to 64 bytes
    out_dir/tokenizer.json, tokenizer_config.json, if the recipe has a tokenizer
    out_dir/preprocessor_config.json, if the recipe has a processor
    out_dir/checkpoint.json                        {"format": "samebits-checkpoint", ...}

It returns the content of checkpoint.json. If the stack does not know the architecture, or has no
model of that head for it, it raises UnknownArchitectureError and writes nothing.

The values come only from Philox and exact IEEE operations (integer sums, one division, multiply,
add, sqrt), never from the release under test, so every stack, machine and process makes the same
bytes.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file

from samebits_probe.model import load, packages, processors, tokenizers
from samebits_probe.process import files as sealed_files
from samebits_probe.process import progress
from samebits_probe.process.hashing import file_hash, head
from samebits_wire import formats
from samebits_wire.atomic import move_new
from samebits_wire.jobs import BuildJob, Recipe

HEADS = {
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
    "next-sentence": "AutoModelForNextSentencePrediction",
    "pretraining": "AutoModelForPreTraining",
    "text-encoding": "AutoModelForTextEncoding",
    "image-classification": "AutoModelForImageClassification",
    "masked-image": "AutoModelForMaskedImageModeling",
    "semantic-segmentation": "AutoModelForSemanticSegmentation",
    "depth-estimation": "AutoModelForDepthEstimation",
    "object-detection": "AutoModelForObjectDetection",
    "zero-shot-object-detection": "AutoModelForZeroShotObjectDetection",
    "image-segmentation": "AutoModelForImageSegmentation",
    "instance-segmentation": "AutoModelForInstanceSegmentation",
    "universal-segmentation": "AutoModelForUniversalSegmentation",
    "mask-generation": "AutoModelForMaskGeneration",
    "backbone": "AutoBackbone",
    "audio-classification": "AutoModelForAudioClassification",
    "audio-frame-classification": "AutoModelForAudioFrameClassification",
    "audio-xvector": "AutoModelForAudioXVector",
    "ctc": "AutoModelForCTC",
    "speech-seq2seq": "AutoModelForSpeechSeq2Seq",
    "image-text-to-text": "AutoModelForImageTextToText",
    "base": "AutoModel",
}
"""Head of a recipe -> the Auto class that makes its model."""
GENERATES = ("causal-lm", "seq2seq-lm")

ALIGNMENT = 64
"""Bytes to which torch's CPU allocator aligns memory."""

N_CHECK_IDS = 24
N_GREEDY = 16
FIRST_PLAIN_ID = 4
"""Special tokens of the tiny vocabularies are below it; padding among the ids would be masked."""


class UnknownArchitectureError(Exception):
    """The release has no such architecture, or no model of that head for it."""


class TooLargeError(Exception):
    """The machine has no memory for the model of a recipe."""


class Rule(NamedTuple):
    """How to fill the tensors whose name in the checkpoint matches a pattern."""

    pattern: str
    form: str
    """``range``: between low and high. ``spread``: mean zero, std ``low``. ``matrix``: mean
    zero, std ``low * gain / sqrt(fan_in)``. ``centred``: as a norm weight, see :func:`_centred`."""
    low: float
    high: float
    reason: str


MIXING = 0.4
"""Scale of attention's output where a norm follows the residual sum, or where it is the same for
every token, as in cross-attention. A large one makes tokens similar and greedy text constant."""

LEARNED_BUFFERS = (
    Rule(r"running_mean$", "range", -0.3, 0.3, "a zero mean would hide a lost one"),
    Rule(r"running_var$", "range", 0.5, 1.5, "a variance is positive"),
    Rule(r"std_bias$", "range", -0.3, 0.3, "as a mean: the features of an image are standardised"),
    Rule(r"std_scale$", "range", 0.5, 1.5, "one would hide what is rounded before it"),
    Rule(r"e_score_correction_bias$", "range", -0.3, 0.3, "added to sigmoids: changes the choice"),
)
"""Persistent buffers that training fills; all others are constants and keep their values."""

RULES = (
    *LEARNED_BUFFERS,
    Rule(r"A_log$", "range", 0.0, 2.0, "A = -exp(A_log) in -7.4..-1: forgets, but not at once"),
    Rule(r"(dt_bias|dt_proj\.bias)$", "range", -4.0, -0.5, "softplus makes steps of 0.02..0.5"),
    Rule(r"(^|\.)D$", "range", 0.6, 1.4, "the skip of a state space, one when constructed"),
    Rule(r"recurrent_param$", "range", -5.0, -2.5, "decay exp(-8 softplus) in 0.5..0.95"),
    Rule(r"time_decay$", "range", -3.0, 1.0, "decay exp(-exp()) in 0.07..0.95"),
    Rule(r"time_first$", "range", -0.5, 0.5, "an exponent: bonus of the current token"),
    Rule(r"time_mix_\w+$", "range", 0.1, 0.9, "a mix of this token and the last, within 0..1"),
    Rule(r"lambda_[qk]\d$", "spread", 0.3, 0.0, "their products are exponents"),
    Rule(r"sinks$", "range", -1.0, 1.0, "logits that compete with the scores, which are near one"),
    Rule(r"(weight_g|weight\.original0)$", "range", 0.6, 1.4, "norms of a weight-normed kernel"),
    Rule(r"relative_attention_bias\.weight$", "spread", 0.5, 0.0, "added to scores near one"),
    Rule(r"bias$", "range", -0.2, 0.2, "a zero bias would hide a lost one"),
    Rule(r"post_feedforward_layernorm\.weight$", "range", 0.7, 2.3, "else tied tokens repeat"),
    Rule(
        r"(norm|norms\.\d+|layernorm_\w+)\.weight$", "centred", 0.4, 0.0, "some are 2-d, per head"
    ),
    Rule(r"(\.gate|router(\.layer)?|expert_gate)\.weight$", "matrix", 4.0, 0.0, "decided routes"),
    Rule(r"attn\.out_proj\.weight$", "matrix", MIXING, 0.0, "bart, opt: not to drown the token"),
    Rule(r"EncDecAttention\.o\.weight$", "matrix", MIXING, 0.0, "t5: not to drown the token"),
    Rule(r"(lm_head|embed_out|classifier|decoder)\.weight$", "matrix", 3.0, 0.0, "lively logits"),
    Rule(r"^shared\.weight$", "spread", 0.5, 0.0, "t5 divides tied logits by sqrt(hidden_size)"),
    Rule(r"(embed\w*|w[tp]e|shared)(\.weight)?$", "spread", 0.2, 0.0, "lively logits"),
    Rule(r"\w+_embeddings(\.weight)?$", "spread", 0.2, 0.0, "the same, other names"),
    Rule(r"(embed_\w+|embeddings?(\.\w+)?)\.weight$", "spread", 0.2, 0.0, "the same, other names"),
    Rule(r"(cls|mask|distillation)_token$", "spread", 0.2, 0.0, "joins the embeddings"),
)
"""First match wins. Tensors without a match: ``centred`` below two dimensions, else ``matrix``."""

_COPIES = 3
"""Copies of its weights that exist while a model is made."""
_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim")
_WIDE = 512
PLAIN_MATRIX = 1.6
"""At 1.0 greedy text becomes a loop of one or two tokens for every prompt."""


def build(
    job: BuildJob, out_dir: str, model: Any = None, facts: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Make the checkpoint of ``job["recipe"]`` in ``out_dir`` and return its summary.

    ``model`` is that of a recipe that leaves its sizes open (jobs.build), and ``facts`` what is known of it.
    """
    progress.begin("build")
    recipe, out = job["recipe"], Path(out_dir)
    packages.import_all(job.get("imports", ()))
    model = model if model is not None else _constructed_model(recipe, job.get("model_class"))
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        summary = _write(model, recipe, folder, facts or {})
        move_new(folder, out, "checkpoint.json")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return summary


def _constructed_class(model_class: Any, recipe: Recipe) -> torch.nn.Module:
    """Return the model of a class that the user names, which no Auto class need know."""
    config = model_class.config_class(**copy.deepcopy(recipe["config"]))
    torch.manual_seed(recipe["seed"])
    model: torch.nn.Module = model_class(config).to(torch.float32).eval()
    return model


def _constructed_model(recipe: Recipe, model_class: str | None) -> torch.nn.Module:
    """Return the model of the head as the stack initialises it."""
    architecture, release = recipe["architecture"], f"transformers {transformers.__version__}"
    if model_class is not None:
        return _constructed_class(packages.named_class(model_class), recipe)
    if architecture not in transformers.CONFIG_MAPPING:
        raise UnknownArchitectureError(f"{release} does not know the architecture {architecture}")
    auto = getattr(transformers, HEADS[recipe["head"]])
    # The config classes edit nested dicts, such as rope_scaling, in place.
    config = transformers.AutoConfig.for_model(architecture, **copy.deepcopy(recipe["config"]))
    if type(config) not in auto._model_mapping:
        raise UnknownArchitectureError(f"{release} has no {auto.__name__} for {architecture}")
    _check_size(architecture, config, auto)
    # A random constant of an architecture (a random projection) is kept, so it must be seeded.
    torch.manual_seed(recipe["seed"])
    return auto.from_config(config, torch_dtype=torch.float32).eval()


def _check_size(architecture: str, config: Any, auto: Any) -> None:
    """Refuse a config, such as the default one of llama, before the kernel ends the process without a word."""
    values = config.to_dict()
    nested = [values, *(part for part in values.values() if isinstance(part, dict))]
    widths = [part.get(name) for part in nested for name in _WIDTHS]
    if not any(isinstance(width, int) and width >= _WIDE for width in widths):
        return  # a tiny model is not constructed twice, as its library may keep what it made first
    try:
        with torch.device("meta"):
            model = auto.from_config(copy.deepcopy(config), torch_dtype=torch.float32)
    except Exception:  # noqa: BLE001  some need the values of their tensors; those are made as they are
        return
    n_bytes = load.n_bytes(model)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if _COPIES * n_bytes > memory:
        n_billions = sum(p.numel() for p in model.parameters()) / 1e9
        raise TooLargeError(
            f"{architecture} with this config has {n_billions:.1f} billion parameters. Made in float32 they take "
            f"{_COPIES * n_bytes / 2**30:.0f} GiB, and this machine has {memory / 2**30:.0f} GiB. Write "
            "auto: true under build:, or small sizes under its config:, such as hidden_size, intermediate_size, "
            "num_hidden_layers and vocab_size"
        )


def _write(
    model: torch.nn.Module, recipe: Recipe, folder: Path, facts: dict[str, Any]
) -> dict[str, Any]:
    tensors, constants = save_seeded(model, folder, recipe["seed"], recipe["gain"])
    _write_tokenizer(recipe, folder)
    if recipe.get("processor") is not None:
        processors.write(folder, recipe["architecture"], recipe["processor"] or {})
    summary = (
        _summary(recipe, tensors, constants)
        | facts
        | {"files": {path.name: file_hash(path) for path in sorted(folder.iterdir())}}
        | _check(recipe, folder, type(model))
    )
    sealed_files.write_sealed(folder / "checkpoint.json", dict(sorted(summary.items())))
    return summary


def _write_tokenizer(recipe: Recipe, folder: Path) -> None:
    if (tokenizer := recipe.get("tokenizer")) is None:
        return
    tokenizers.write(
        folder,
        tokenizer["kind"],
        slow_files=tokenizer["slow_files"],
        unused=tokenizer.get("unused", 0),
        parts=tokenizer["parts"],
        **{"tokenizer_class": tokenizer["tokenizer_class"]} | tokenizer["config"],
    )


def save_seeded(
    model: torch.nn.Module, folder: Path, seed: int, gain: float
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Save a model in the stack's own layout, with seeded values in place of its own.

    Returns the tensors with new values, and the names of those that stay as constructed.
    """
    progress.tick("save the layout", allowance=progress.moving(load.n_bytes(model)), moves=True)
    _save_skeleton(model, folder)
    file = folder / "model.safetensors"
    skeleton = load_file(file)
    constants = _constant_names(model, skeleton)
    transposed = _transposed_names(model)
    tensors = {}
    for i, (name, skeleton_tensor) in enumerate(skeleton.items(), 1):
        if name not in constants:
            progress.tick(
                name, i, len(skeleton), allowance=progress.moving(10 * skeleton_tensor.nbytes)
            )
            fan_in = _fan_in(skeleton_tensor.shape, name in transposed)
            tensors[name] = _values((seed, gain), name, skeleton_tensor, fan_in=fan_in)
    size = sum(skeleton_tensor.nbytes for skeleton_tensor in skeleton.values())
    progress.tick("save and check", allowance=progress.moving(3 * size), moves=True)
    _save_aligned(tensors | {name: skeleton[name] for name in constants}, file)
    return tensors, constants


def _save_aligned(tensors: dict[str, np.ndarray], path: Path) -> None:
    """Write a safetensors file whose tensors are at multiples of 64 bytes, as far as possible.

    Releases differ in whether a parameter is the mapped file or a copy, which torch aligns to 64
    bytes, and the rounding of kernels depends on the alignment. The header may be padded, but gaps
    between tensors are not allowed. Tensors whose size is not a multiple of 64 therefore come last;
    the first of them is still aligned. They are ordered by the size of an element, which must
    divide the offset for torch. Matrices come before vectors, with which no product begins.
    """
    order = sorted(tensors, key=lambda name: _sort_key(name, tensors[name]))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        array = tensors[name]
        entry = {"dtype": _dtype_name(array.dtype), "shape": list(array.shape)}
        header[name] = entry | {"data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            dtype = tensors[name].dtype.newbyteorder("<")
            file.write(np.ascontiguousarray(tensors[name], dtype).tobytes())


def _sort_key(name: str, array: np.ndarray) -> tuple[bool, int, int, int, str]:
    return array.nbytes % ALIGNMENT > 0, -array.itemsize, -array.ndim, -array.nbytes, name


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return "BOOL" if dtype.kind == "b" else f"{dtype.kind.upper()}{8 * dtype.itemsize}"


_ONE_FILE = 1 << 60
"""Bytes of a shard, more than any model has; 4.x splits at 5 GB and 5.x at 50 GB."""


def _save_skeleton(model: torch.nn.Module, folder: Path) -> None:
    """Write the model in the stack's own layout: 5.x reverses its fusions and renames here."""
    try:
        model.save_pretrained(folder, max_shard_size=_ONE_FILE)
    except RuntimeError as error:
        # 4.x refuses a model with undeclared shared tensors (zamba2 in 4.57.6: its patterns lack
        # the prefix of the causal-lm class).
        if "shared tensors" not in str(error):
            raise
        model.save_pretrained(folder, state_dict=_first_of_shared(model), max_shard_size=_ONE_FILE)


def _first_of_shared(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    first: dict[tuple[int, torch.Size], str] = {}
    tensors = model.state_dict()
    for name, tensor in tensors.items():
        first.setdefault((tensor.data_ptr(), tensor.shape), name)
    return {name: tensors[name] for name in first.values()}


def _constant_names(model: torch.nn.Module, skeleton: dict[str, np.ndarray]) -> list[str]:
    """Return the names of tensors that training does not change; they stay as constructed."""
    frozen = {name for name, tensor in model.named_parameters() if not tensor.requires_grad}
    fixed = frozen | {name for name, _ in model.named_buffers()}
    return sorted(
        name
        for name, tensor in skeleton.items()
        if tensor.dtype.kind != "f" or (name in fixed and not _rule(name, LEARNED_BUFFERS))
    )


def _transposed_names(model: torch.nn.Module) -> set[str]:
    """Return the names of matrices stored as (in, out): gpt2's Conv1D."""
    modules = model.named_modules()
    return {f"{name}.weight" for name, module in modules if type(module).__name__ == "Conv1D"}


def _fan_in(shape: tuple[int, ...], transposed: bool) -> int:
    """Return the number of products in the sum of one output."""
    if len(shape) < 2:
        return 1
    if transposed:
        return shape[0]
    # (out, in), or a kernel (out, in, width), (out, in, height, width). Stacked experts
    # (experts, out, in) look like a kernel, but no kernel here is wider than 16.
    return shape[2] if len(shape) == 3 and shape[2] > 16 else math.prod(shape[1:])


def _rule(name: str, rules: tuple[Rule, ...]) -> Rule | None:
    return next((rule for rule in rules if re.search(rule.pattern, name)), None)


def _values(
    seed_and_gain: tuple[int, float], name: str, skeleton_tensor: np.ndarray, fan_in: int
) -> np.ndarray:
    seed, gain = seed_and_gain
    rule = _rule(name, RULES)
    random_words = _random_words(seed, name, skeleton_tensor.size)
    if rule is None and skeleton_tensor.ndim > 1:
        rule = Rule("", "matrix", PLAIN_MATRIX, 0.0, "")
    if rule is None or rule.form == "centred":
        values = _centred(random_words, skeleton_tensor)
    elif rule.form == "range":
        values = rule.low + (rule.high - rule.low) * _uniform(random_words)
    elif rule.form == "spread":
        values = rule.low * _bell_shaped(random_words)
    else:
        values = rule.low * gain / math.sqrt(fan_in) * _bell_shaped(random_words)
    return values.astype(skeleton_tensor.dtype).reshape(skeleton_tensor.shape)


def _centred(random_words: np.ndarray, skeleton_tensor: np.ndarray) -> np.ndarray:
    """Return values around one, or around zero if the stack initialised the tensor with zeros.

    Zeros mean that the model adds the one itself (gemma's ``1 + weight``), or that the tensor is a
    bias of another name.
    """
    centre = 1.0 if skeleton_tensor.any() else 0.0
    return centre - 0.4 + 0.8 * _uniform(random_words)


def _random_words(seed: int, name: str, size: int) -> np.ndarray:
    """Return random 64-bit words; numpy guarantees stable streams of bit generators (NEP 19)."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16], "little")).random_raw(size)


def _uniform(raw: np.ndarray) -> np.ndarray:
    """Return doubles in [0, 1)."""
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _bell_shaped(raw: np.ndarray) -> np.ndarray:
    """Return doubles of mean zero and std one, within 3.5: sums of four 16-bit integers.

    A normal distribution needs log and cos, whose last bit is the math library's.
    """
    mask = np.uint64(0xFFFF)
    total = np.zeros(raw.shape, dtype=np.float64)
    for shift in (0, 16, 32, 48):
        total += ((raw >> np.uint64(shift)) & mask).astype(np.float64)
    return (total - 131070.0) / math.sqrt((2.0**32 - 1.0) / 3.0)


def _summary(
    recipe: Recipe, tensors: dict[str, np.ndarray], constants: list[str]
) -> dict[str, Any]:
    return {
        **head("checkpoint", formats.CHECKPOINT),
        "recipe": recipe,
        "transformers": transformers.__version__,
        "n_parameters": sum(tensor.size for tensor in tensors.values()),
        "kept_as_constructed": constants,
    }


def _check(recipe: Recipe, folder: Path, model_class: Any) -> dict[str, Any]:
    """Load the checkpoint in this stack, and return how much its outputs vary.

    A failure is only recorded: other stacks may load the checkpoint, and this stack's cell will
    fail with the traceback.
    """
    try:
        model = model_class.from_pretrained(folder, torch_dtype=torch.float32).eval()
        with torch.no_grad():
            facts = {"logits_std": _logits_std(model, recipe["seed"]), "distinct_greedy": None}
            if _head(recipe, model) in GENERATES:
                facts["distinct_greedy"] = len(set(_greedy(model, recipe["seed"])))
    except Exception as error:  # noqa: BLE001 - any failure is a result
        facts = {"logits_std": None, "distinct_greedy": None}
        # The folder's temporary name would make two builds differ.
        message = f"{type(error).__name__}: {error}".replace(str(folder), "")
        return facts | {"check_failure": message}
    return facts | {"check_failure": None}


def _head(recipe: Recipe, model: torch.nn.Module) -> str:
    """Return the head of a recipe; of one that leaves it open, the model's."""
    if recipe["head"] in HEADS:
        return recipe["head"]
    return load.head_of(type(model).__name__, encoder_decoder=load.is_encoder_decoder(model))


def _logits_std(model: torch.nn.Module, seed: int) -> float:
    output = model(**_inputs(model, seed))
    logits = output.logits if "logits" in output else output[0]
    # Four digits, because the last bits of a forward depend on the machine.
    return float(f"{logits.double().std().item():.4g}")


def _inputs(model: torch.nn.Module, seed: int) -> dict[str, Any]:
    name, config = model.main_input_name, model.config
    shape: tuple[int, ...]
    if name == "pixel_values":
        shape = (1, config.num_channels, config.image_size, config.image_size)
    elif name == "input_values":
        shape = (1, 4000)
    else:
        return _with_decoder(config, {"input_ids": _ids(model, seed)})
    values = _bell_shaped(_random_words(seed, name, math.prod(shape))).astype(np.float32)
    return {name: torch.from_numpy(values.reshape(shape))}


def _ids(model: torch.nn.Module, seed: int) -> torch.Tensor:
    n_plain = model.get_input_embeddings().num_embeddings - FIRST_PLAIN_ID
    words = _random_words(seed, "input_ids", N_CHECK_IDS) % np.uint64(n_plain)
    return torch.from_numpy(words.astype(np.int64) + FIRST_PLAIN_ID)[None]


def _with_decoder(config: transformers.PretrainedConfig, inputs: dict[str, Any]) -> dict[str, Any]:
    if not getattr(config, "is_encoder_decoder", False):
        return inputs
    start = getattr(config, "decoder_start_token_id", None) or 0
    return inputs | {"decoder_input_ids": torch.tensor([[start]])}


def _greedy(model: torch.nn.Module, seed: int) -> list[int]:
    """Return greedy tokens by full forwards, without cache and generate(), which may be broken."""
    inputs = _inputs(model, seed)
    name = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    for i in range(N_GREEDY):
        progress.tick("greedy", i + 1, N_GREEDY)
        token = model(**inputs, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        inputs[name] = torch.cat([inputs[name], token], dim=1)
    chosen: list[int] = inputs[name][0, -N_GREEDY:].tolist()
    return chosen
