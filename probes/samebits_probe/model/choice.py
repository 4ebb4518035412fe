"""Choice of a model's inputs: which arguments of forward to pass, from its signature and config.

This module uses no torch, and the name of a class only where nothing else tells. A signature and a config are plain data, so
that tests of the host can cover the rules.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

SkipKind = Literal["plain", "inputs"]
Shapes = Mapping[str, Sequence[int]]
NO_SHAPES: Shapes = MappingProxyType({})

TOKENS = "input_ids"
MASK = "attention_mask"
DECODER = "decoder_input_ids"
IMAGE_PLACES = "image_embeds_position_mask"
"""Where Kosmos-2 has its image among its tokens; it takes neither of them alone."""
PIXELS = "pixel_values"
IMAGE_NAMES = (PIXELS, "pixel_values_images", "image_patches")
"""Parameters for an image: the second is Video-LLaVA's in earlier releases, the third Fuyu's."""
WAVE = "input_values"
"""A sound as it is: its shape is a number of samples."""
VALUES = (PIXELS, "input_features", WAVE)
"""Arguments for seeded numbers: an image, the features of a sound, or a sound."""
MAIN_INPUTS = (TOKENS, *VALUES)
"""Main inputs that samebits can make, in order of preference."""
WRITE = "give them with --inputs FILE, or under inputs: in matrix.yaml"
SUPPORTED_INPUTS = f"samebits makes token ids, pixel values and audio: for others, {WRITE}"

_KINDS = {
    "images": re.compile(r"pixel_values\w*|images?|image_patches|videos?"),
    "sounds": re.compile(r"input_features|input_values|audio\w*"),
}
"""Kind of data beside token ids -> the parameters of forward that take it, by any name of any release."""

NO_DATA = frozenset(
    {
        MASK,
        "cache",
        "cache_params",
        "cache_position",
        "decoder_attention_mask",
        "decoder_head_mask",
        "cross_attn_head_mask",
        "head_mask",
        "interpolate_pos_encoding",
        "labels",
        "logits_to_keep",
        "num_logits_to_keep",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "past_key_value",
        "past_key_values",
        "position_ids",
        "return_dict",
        "return_loss",
        "state",
        "use_cache",
    }
)
"""Parameters for a state, a switch or a position, not for an input: a plain call omits them."""

_PLACEHOLDER = re.compile(r"(image|img|video|vision|audio|speech)\w*_token\w*_(id|index)")
_QUERIES = "num_query_tokens"
"""Config field of a query transformer: the number of image tokens among the token ids."""
_MAX_LISTED_NAMES = 6
_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "width")
"""Config fields for the size of a vector."""


class DoesNotApply(Exception):  # noqa: N818  "this model takes no such prompt" is a result
    """The prompt does not apply to this model; the message is the reason."""

    why: SkipKind = "plain"
    """As samebits/records/capture.py's Skip has it."""
    paste: str = ""
    """What to write below the model in matrix.yaml or into the file of --inputs, if that helps."""


class NotFed(DoesNotApply):
    """samebits cannot make inputs for the model, or its forward refuses them; with the reason."""

    why: SkipKind = "inputs"

    def __init__(self, reason: str, paste: str = "") -> None:
        super().__init__(reason)
        self.paste = paste


class Parameter(NamedTuple):
    """One parameter of forward that can be passed by name."""

    name: str
    required: bool = False
    annotation: str = ""

    def described(self) -> str:
        """Return the name, with the annotation if there is one."""
        return f"{self.name}: {self.annotation}" if self.annotation else self.name


def written(parameter: Parameter, width: str = "hidden_size", series: Shapes = NO_SHAPES) -> str:
    """Return how matrix.yaml may declare a parameter, as a proposal: from its name and annotation.

    ``width`` is the size of a vector: a field of the config, or a number. ``series`` has the shapes of the arguments
    of a model of series, without the number of rows.
    """
    name, annotation = parameter.name.lower(), parameter.annotation
    shape = ", ".join(map(str, (1, *series.get(name, (12,)))))
    if "mask" in name:
        return f"{{shape: [{shape}], mask: ones}}"
    if "categorical" in name and name in series:
        return f"{{shape: [{shape}], dtype: int64, high: 2}}"
    if name in series or re.fullmatch(r"context|(past|future)_values", name):
        return f"{{shape: [{shape}], dtype: float32}}"
    if re.fullmatch(r"(past|future)_time_features", name):
        return "{shape: [1, 12, num_time_features], dtype: float32}"
    if re.search(r"\bbool\b", annotation):
        return "false"
    if re.search(r"\b(int|float)\b", annotation) and "Tensor" not in annotation:
        return "1"
    if "LongTensor" in annotation or "IntTensor" in annotation or re.search(r"(^|_)ids?$", name):
        return "{shape: [1, 12], dtype: int64, high: 2}"
    return f"{{shape: [1, 12, {width}], dtype: float32}}"


def lines_for(
    parameters: Iterable[Parameter], width: str = "hidden_size", series: Shapes = NO_SHAPES
) -> str:
    """Return what to write below a model in matrix.yaml to give it ``parameters``."""
    declared = [f"      {p.name}: {written(p, width, series)}" for p in parameters]
    return "\n".join(["inputs:", "  mine:", "    arguments:", *declared])


class Signature(NamedTuple):
    """The parameters of a forward."""

    parameters: tuple[Parameter, ...]
    takes_any: bool = False
    """True if it has ``**kwargs``."""

    @property
    def names(self) -> frozenset[str]:
        """The names of the listed parameters."""
        return frozenset(self.listed)

    @property
    def listed(self) -> tuple[str, ...]:
        """The names of the listed parameters, in their order."""
        return tuple(parameter.name for parameter in self.parameters)

    def takes(self, name: str) -> bool:
        """Return True if a call may pass ``name``."""
        return self.takes_any or name in self.names

    @property
    def lists_nothing(self) -> bool:
        """True for ``forward(*args, **kwargs)``, which lists no parameters."""
        return self.takes_any and not self.parameters


class Traits(NamedTuple):
    """Facts other than the signature on which the choice depends."""

    main: str = TOKENS
    """The class's main_input_name."""
    vocabulary: int = 0
    """Number of token ids; 0 if the config has none."""
    encoder_decoder: bool = False
    has_decoder: bool = False
    """True for a config with a decoder's config in it: MusicGen Melody of 4.x says that it is no encoder-decoder."""
    generates: bool = False
    text_and_image: bool = False
    """True if the config describes both a text part and an image part."""
    text_and_audio: bool = False
    has_spectrogram: bool = False
    """True if the shape of the sound beside the text is known, as CLAP's is."""
    width: str = "hidden_size"
    """The size of a vector, for a proposal: a field of the config, or a number."""
    series: Shapes = NO_SHAPES
    """The shapes of the arguments of a model of series, for a proposal; empty for another one."""
    placeholders: tuple[str, ...] = ()
    """Config fields of placeholder tokens for an image or a sound among the token ids."""
    named: tuple[str, ...] = ()
    """Arguments that model.named makes."""


def takes_choices(class_name: str) -> bool:
    """Return True for a class that takes several choices per row, [batch, choices, length].

    Its signature is that of a class that takes one: only the name tells.
    """
    return class_name.endswith("ForMultipleChoice")


def takes_special(
    class_name: str, signature: Signature, traits: Traits, fed: Collection[str]
) -> bool:
    """Return True for a model of text whose rows are padded on the right and have special tokens.

    4.48 says of masked models that they generate.
    """
    is_text = TOKENS in fed and set(fed) <= {TOKENS, MASK, DECODER}
    encodes = not traits.generates or class_name.endswith("ForMaskedLM")
    return is_text and encodes and signature.takes(MASK) and not takes_choices(class_name)


def signature_of(forward: Callable[..., Any]) -> Signature:
    """Return the parameters of a forward; of a function of a class, without ``self``."""
    listed, takes_any = [], False
    parameters = list(inspect.signature(forward).parameters.values())
    if parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
        elif parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            required = parameter.default is parameter.empty
            listed.append(Parameter(parameter.name, required, _annotation(parameter)))
    return Signature(tuple(listed), takes_any)


def _annotation(parameter: inspect.Parameter) -> str:
    if parameter.annotation is parameter.empty:
        return ""
    if isinstance(parameter.annotation, str):
        return parameter.annotation
    return inspect.formatannotation(parameter.annotation).replace("typing.", "")


def kinds_of(signature: Signature) -> tuple[str, ...]:
    """Return which data a forward lists parameters for: ``images``, ``sounds``."""
    return tuple(
        kind for kind, names in _KINDS.items() if any(map(names.fullmatch, signature.names))
    )


def traits_of(
    config: Mapping[str, Any],
    *,
    main: str,
    vocabulary: int,
    generates: bool,
    series: Shapes = NO_SHAPES,
    named: tuple[str, ...] = (),
) -> Traits:
    """Return the traits of a model; ``config`` is the whole config as plain data."""
    has_text = isinstance(config.get("text_config"), dict)
    has_image = any(
        isinstance(config.get(name), dict) for name in ("vision_config", "image_config")
    )
    flat = bool(config.get("vocab_size")) and config.get("image_size") is not None
    placeholders = [
        name
        for name, value in config.items()
        if isinstance(value, int) and (_PLACEHOLDER.fullmatch(name) or name == _QUERIES)
    ]
    return Traits(
        main=main,
        vocabulary=vocabulary,
        encoder_decoder=bool(config.get("is_encoder_decoder")),
        has_decoder=isinstance(config.get("decoder"), dict),
        generates=generates,
        text_and_image=(has_text and has_image) or flat,
        text_and_audio=has_text and isinstance(config.get("audio_config"), dict),
        has_spectrogram="spec_size" in (config.get("audio_config") or ()),
        series=series,
        width=next((name for name in _WIDTHS if isinstance(config.get(name), int)), "16"),
        placeholders=tuple(placeholders),
        named=named,
    )


def arguments(signature: Signature, traits: Traits) -> tuple[str, ...]:
    """Return the arguments of forward to pass; the one that sets the number of rows comes first.

    A mask for a padded batch is added later, if forward takes one.
    """
    if {IMAGE_PLACES, PIXELS} <= signature.names:
        raise DoesNotApply(f"forward takes {PIXELS} with {IMAGE_PLACES}, and no text without them")
    chosen = [_main_argument(signature, traits)]
    chosen += [
        name for name in _two_part_arguments(signature, traits, chosen[0]) if name not in chosen
    ]
    chosen += [name for name in traits.named if name not in chosen]
    takes_decoder = DECODER in signature.names or signature.lists_nothing
    if (traits.encoder_decoder or traits.has_decoder) and takes_decoder:
        chosen.append(DECODER)
    missing = []
    for parameter in signature.parameters:
        if not parameter.required or parameter.name in chosen:
            continue
        if _can_be_added(parameter.name, chosen):
            chosen.append(parameter.name)
        else:
            missing.append(parameter)
    if missing:
        raise _required(missing, traits)
    if traits.placeholders and TOKENS in chosen and set(chosen) & set(VALUES):
        value = next(name for name in chosen if name in VALUES)
        raise NotFed(
            f"forward takes {value} (required) with placeholder tokens among {TOKENS} "
            f"({traits.placeholders[0]}), and samebits cannot tell how many"
        )
    return tuple(sorted(chosen, key=lambda name: name != TOKENS))


def _main_argument(signature: Signature, traits: Traits) -> str:
    """Return the main input: main_input_name if forward lists it, else the first listed one."""
    main = TOKENS if traits.main == "inputs_embeds" else traits.main
    listed = [name for name in MAIN_INPUTS if name in signature.names]
    if main in listed:
        without_ids = main == TOKENS and not traits.vocabulary
        values = [name for name in listed if name in VALUES]
        return values[0] if without_ids and values else main
    if listed:
        return listed[0]
    if traits.named:
        return traits.named[0]
    if signature.takes_any and main in MAIN_INPUTS and (main != TOKENS or traits.vocabulary):
        return main
    raise _unsupported(signature, traits)


def _unsupported(signature: Signature, traits: Traits) -> NotFed:
    """Return the reason why samebits can make no input of a signature."""
    data = [p for p in signature.parameters if p.required or p.name not in NO_DATA]
    required = [p for p in data if p.required]
    if required:
        return _required(required, traits)
    names = [parameter.described() for parameter in data]
    remainder = (
        f" and {len(names) - _MAX_LISTED_NAMES} more" if len(names) > _MAX_LISTED_NAMES else ""
    )
    listed = ", ".join(names[:_MAX_LISTED_NAMES]) or "any keyword, without a list"
    reason = f"forward takes {listed}{remainder}; {SUPPORTED_INPUTS}"
    return NotFed(
        reason, lines_for(data[:_MAX_LISTED_NAMES], traits.width, traits.series) if data else ""
    )


def _required(parameters: list[Parameter], traits: Traits) -> NotFed:
    listed = ", ".join(parameter.described() for parameter in parameters)
    reason = f"forward takes {listed} (required), which samebits cannot make: {WRITE}"
    return NotFed(reason, lines_for(parameters, traits.width, traits.series))


def _two_part_arguments(signature: Signature, traits: Traits, main: str) -> Iterable[str]:
    """Return the inputs of a model with two parts; () for any other model.

    A model that generates text needs no image. A model with placeholder tokens for its image would
    need their positions.
    """
    if traits.placeholders or TOKENS not in signature.names or not traits.vocabulary:
        return ()
    if main == TOKENS and traits.generates:
        return ()
    if traits.text_and_image and PIXELS in signature.names and main in {TOKENS, PIXELS}:
        return (TOKENS, PIXELS)
    if traits.text_and_audio and main == TOKENS:
        sounds = [name for name in VALUES[1:] if name in signature.names]
        if sounds and (traits.has_spectrogram or sounds[0] == WAVE):
            return (TOKENS, sounds[0])
        if sounds:
            raise NotFed(
                f"forward takes {sounds[0]} and {TOKENS}, and samebits cannot tell the shape of the first"
            )
    return ()


def _can_be_added(name: str, chosen: list[str]) -> bool:
    """Return True if samebits can make a required parameter in addition to the chosen ones."""
    return name in {*MAIN_INPUTS, DECODER} or (name == MASK and TOKENS in chosen)
