"""The tasks of pipelines: the Auto classes that serve each, what it needs, and how it is called.

The names are those of ``SUPPORTED_TASKS`` in transformers/pipelines/__init__.py, 4.48.3 to 5.24.0; a
release need not have all of them. Arguments are given where the default draws random numbers or takes
hundreds of tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import transformers

from samebits_probe.model.load import Loaded, Source
from samebits_probe.questions.pipelines import films
from samebits_probe.questions.processors import samples
from samebits_probe.questions.processors.processors import FILES

Facts = dict[str, Any]
_TEXT = "The capital of France is Paris, and people said hello world."
_LABELS = ("travel", "cooking", "dancing")
_OF_GENERATE, _SOUND, _FRAMES = "generate_kwargs", "output_audio", "num_frames"
_ANY = "AutoModel"
"""The Auto class that has all models, also those that a task is not for."""
_GREEDY: Facts = {"max_new_tokens": 6, "do_sample": False, "num_beams": 1}


class Call(NamedTuple):
    """One call of a pipeline: from the pipeline to its input, and arguments by name."""

    made: Callable[[Any], Any]
    """Returns None where all is given by name."""
    arguments: Facts = {}  # noqa: RUF012  never written
    is_batch: bool = False
    """True if its inputs are a list, of which each is to get the answer that it gets by itself."""


class Task(NamedTuple):
    """One task."""

    autos: tuple[str, ...]
    """The Auto classes of which one has the model's class."""
    needs: tuple[str, ...]
    """``tokenizer``, ``processor``."""
    calls: dict[str, Call]
    generates: bool = False
    computes: bool = False
    """True if numbers that no given output replaces are in the answer, as those of a vocoder: they may round."""
    main_input: str = ""
    """The input of the models that it is for, where its Auto class has all of them."""
    methods: tuple[str, ...] = ()
    """Methods of the models that it is for, in the same way."""
    reads: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Replaces the reading of files while the pipeline runs."""


def _text(text: str) -> Callable[[Any], Any]:
    return lambda _pipe: text


def _prompts(_pipe: Any) -> list[str]:
    """Return prompts of which only the longer one gets no padding."""
    return ["hello", "The capital of France is Paris, and people said"]


def _nothing(_pipe: Any) -> None:
    return None


def _chat(_pipe: Any) -> Any:
    return [{"role": "user", "content": "What is the capital of France?"}]


def _masked(pipe: Any) -> str:
    return f"The capital of France is {pipe.tokenizer.mask_token}."


def _masked_texts(pipe: Any) -> list[str]:
    return [_masked(pipe), f"hello {pipe.tokenizer.mask_token}"]


def _masked_twice(pipe: Any) -> str:
    return f"The {pipe.tokenizer.mask_token} of France is {pipe.tokenizer.mask_token}."


def _image(_pipe: Any) -> Any:
    return samples.pictures()["RGB 97 x 64"]()


def _images(_pipe: Any) -> Any:
    return list(samples.pictures()["two images"]())


def _sound(_pipe: Any, part: int = 2) -> Any:
    return {"raw": samples.sound(samples.RATE // part, part), "sampling_rate": samples.RATE}


def _sounds(pipe: Any) -> Any:
    return [_sound(pipe), _sound(pipe, 3)]


def _image_chat(_pipe: Any) -> Any:
    parts = [{"type": "image", "image": _image(_pipe)}, {"type": "text", "text": "what is it?"}]
    return [{"role": "user", "content": parts}]


def _image_chats(pipe: Any) -> Any:
    """Return two conversations with an image each, of which the second one is longer."""
    messages = ("assistant", "a cat, it seems"), ("user", "what is its name?")
    turns = [{"role": who, "content": [{"type": "text", "text": text}]} for who, text in messages]
    return [_image_chat(pipe), [*_image_chat(pipe), *turns]]


def _sound_chat(_pipe: Any) -> Any:
    parts = [{"type": "audio", "audio": _samples(_pipe)}, {"type": "text", "text": "what is it?"}]
    return [{"role": "user", "content": parts}]


def _samples(_pipe: Any) -> Any:
    return samples.sound(samples.RATE // 2, 2)


def _table(_pipe: Any) -> Any:
    columns = {"name": ["Paris", "Rome"], "people": ["2100000", "2800000"]}
    return {"table": columns, "query": "How many people are in Rome?"}


CHATS = (_chat, _image_chat, _image_chats, _sound_chat)
"""What makes a conversation, for which a checkpoint needs a template."""
_QUESTION: Facts = {"question": "Who said hello?", "context": _TEXT}
_PROMPT = Call(_text("The capital of France is"), _GREEDY)
_MASKS = ("Image", "Semantic", "Instance", "Universal")
"""Kinds of segmentation, which one pipeline serves; it loads those of the last two by their own class."""
_BATCH: Facts = {"batch_size": 2}
_TEXTS = Call(_prompts, _BATCH)
_IMAGES = {
    "an image": Call(_image),
    "a gray image": Call(lambda _pipe: samples.pictures()["gray"]()),
    "two images as a batch": Call(_images, _BATCH),
}
_ASKED = "what is it?"
_BOXES = [["the", [10, 10, 90, 40]], ["people", [100, 10, 250, 40]], ["hello", [10, 60, 120, 90]]]
"""Words of a page, and where they stand on it."""
_NLI = {
    "labels": Call(_text(_TEXT), {"candidate_labels": list(_LABELS)}),
    "several may be true": Call(
        _text(_TEXT), {"candidate_labels": list(_LABELS), "multi_label": True}
    ),
}
_SEQ2SEQ = ("AutoModelForSeq2SeqLM",)
_CLASSIFIES = ("AutoModelForSequenceClassification",)

TASKS: dict[str, Task] = {
    "text-generation": Task(
        ("AutoModelForCausalLM",),
        ("tokenizer",),
        {
            "a prompt": _PROMPT,
            "only new text": Call(_PROMPT.made, {**_GREEDY, "return_full_text": False}),
            "a chat": Call(_chat, _GREEDY),
            "two prompts as a batch": Call(_prompts, {**_GREEDY, "batch_size": 2}, is_batch=True),
        },
        generates=True,
    ),
    "fill-mask": Task(
        ("AutoModelForMaskedLM",),
        ("tokenizer",),
        {
            "a text": Call(_masked),
            "two masks": Call(_masked_twice),
            "targets": Call(_masked, {"targets": ["the", "people"]}),
            "two texts as a batch": Call(_masked_texts, _BATCH),
        },
    ),
    "text-classification": Task(
        _CLASSIFIES,
        ("tokenizer",),
        {
            "a text": Call(_text(_TEXT)),
            "all labels": Call(_text(_TEXT), {"top_k": None}),
            "two texts as a batch": _TEXTS,
        },
    ),
    "zero-shot-classification": Task(_CLASSIFIES, ("tokenizer",), _NLI),
    "token-classification": Task(
        ("AutoModelForTokenClassification",),
        ("tokenizer",),
        {"a text": Call(_text(_TEXT)), "two texts as a batch": _TEXTS}
        | {
            f"aggregation {name}": Call(_text(_TEXT), {"aggregation_strategy": name})
            for name in ("simple", "first", "average", "max")
        },
    ),
    "question-answering": Task(
        ("AutoModelForQuestionAnswering",),
        ("tokenizer",),
        {
            "a question": Call(_nothing, _QUESTION),
            "three answers": Call(_nothing, {**_QUESTION, "top_k": 3}),
            "one argument": Call(lambda _pipe: dict(_QUESTION)),
        },
    ),
    "feature-extraction": Task(("AutoModel",), ("tokenizer",), {"a text": Call(_text(_TEXT))}),
    "summarization": Task(
        _SEQ2SEQ, ("tokenizer",), {"a text": Call(_text(_TEXT), _GREEDY)}, generates=True
    ),
    "text2text-generation": Task(
        _SEQ2SEQ, ("tokenizer",), {"a text": Call(_text(_TEXT), _GREEDY)}, generates=True
    ),
    "translation": Task(
        _SEQ2SEQ, ("tokenizer",), {"a text": Call(_text(_TEXT), _GREEDY)}, generates=True
    ),
    "table-question-answering": Task(
        ("AutoModelForTableQuestionAnswering",), ("tokenizer",), {"a table": Call(_table)}
    ),
    "image-classification": Task(("AutoModelForImageClassification",), ("processor",), _IMAGES),
    "object-detection": Task(("AutoModelForObjectDetection",), ("processor",), _IMAGES),
    "image-segmentation": Task(
        tuple(f"AutoModelFor{kind}Segmentation" for kind in _MASKS),
        ("processor",),
        _IMAGES,
    ),
    "depth-estimation": Task(("AutoModelForDepthEstimation",), ("processor",), _IMAGES),
    "mask-generation": Task(
        ("AutoModelForMaskGeneration",),
        ("processor",),
        {"an image": Call(_image, {"points_per_batch": 64})},
    ),
    "zero-shot-image-classification": Task(
        ("AutoModelForZeroShotImageClassification",),
        ("processor", "tokenizer"),
        {"labels": Call(_image, {"candidate_labels": list(_LABELS)})},
    ),
    "zero-shot-object-detection": Task(
        ("AutoModelForZeroShotObjectDetection",),
        ("processor", "tokenizer"),
        {"labels": Call(_image, {"candidate_labels": list(_LABELS), "threshold": 0.0})},
    ),
    "image-feature-extraction": Task(
        ("AutoModel",),
        ("processor",),
        {"an image": Call(_image), "pooled": Call(_image, {"pool": True})},
        main_input="pixel_values",
    ),
    "image-to-image": Task(
        ("AutoModelForImageToImage",), ("processor",), {"an image": Call(_image)}
    ),
    "keypoint-matching": Task(
        ("AutoModelForKeypointMatching",),
        ("processor",),
        {"two images": Call(_images)},
        computes=True,  # a forward returns which points it took for the same ones
    ),
    "document-question-answering": Task(
        ("AutoModelForDocumentQuestionAnswering",),
        ("tokenizer",),
        {
            "words and boxes": Call(
                lambda _pipe: {"image": None, "question": _ASKED, "word_boxes": _BOXES}
            )
        },
    ),
    "visual-question-answering": Task(
        ("AutoModelForVisualQuestionAnswering",),
        ("processor", "tokenizer"),
        {"a question": Call(lambda pipe: {"image": _image(pipe), "question": _ASKED})},
        generates=True,
    ),
    "video-classification": Task(
        ("AutoModelForVideoClassification",),
        ("processor",),
        {"a video": Call(lambda _pipe: films.PATH, {_FRAMES: films.COUNT})},
        reads=films.read,
    ),
    "image-to-text": Task(
        ("AutoModelForVision2Seq", "AutoModelForImageTextToText"),
        ("processor", "tokenizer"),
        {"an image": Call(_image, {"generate_kwargs": _GREEDY})},
        generates=True,
    ),
    "image-text-to-text": Task(
        ("AutoModelForImageTextToText",),
        ("processor", "tokenizer"),
        {
            "a chat with an image": Call(_image_chat, {"generate_kwargs": _GREEDY}),
            "two chats as a batch": Call(
                _image_chats, {"generate_kwargs": _GREEDY, **_BATCH}, is_batch=True
            ),
        },
        generates=True,
    ),
    "automatic-speech-recognition": Task(
        ("AutoModelForCTC", "AutoModelForTDT", "AutoModelForSpeechSeq2Seq"),
        ("processor", "tokenizer"),
        {
            "a sound": Call(_sound, {"generate_kwargs": _GREEDY}),
            "a sound, the times of words": Call(
                _sound, {"generate_kwargs": _GREEDY, "return_timestamps": "word"}
            ),
            "two sounds as a batch": Call(_sounds, {"generate_kwargs": _GREEDY, **_BATCH}),
        },
        generates=True,
    ),
    "audio-classification": Task(
        ("AutoModelForAudioClassification",),
        ("processor",),
        {"a sound": Call(_sound), "two sounds as a batch": Call(_sounds, _BATCH)},
    ),
    "zero-shot-audio-classification": Task(
        ("AutoModel",),
        ("processor", "tokenizer"),
        {"labels": Call(_samples, {"candidate_labels": list(_LABELS)})},
        methods=("get_audio_features", "get_text_features"),
    ),
    "any-to-any": Task(
        ("AutoModelForMultimodalLM",),
        ("processor", "tokenizer"),
        {
            "a chat with an image": Call(_image_chat, {"generate_kwargs": _GREEDY}),
            "a chat with a sound": Call(_sound_chat, {"generate_kwargs": _GREEDY}),
        },
        generates=True,
    ),
    # a model of spectrograms gets a vocoder from the hub
    "text-to-audio": Task(
        ("AutoModelForTextToWaveform",),
        ("tokenizer",),
        {"a text": Call(_text("hello world"), {"generate_kwargs": _GREEDY})},
        computes=True,
    ),
}


def served(model: Any) -> list[str]:
    """Return the tasks that the model's class serves."""
    main_input = getattr(model, "main_input_name", "input_ids")
    return [
        name
        for name, task in TASKS.items()
        if task.main_input in ("", main_input)
        and all(hasattr(model, method) for method in task.methods)
        and any(_has(auto, model) for auto in task.autos)
    ]


def unasked(model: Any) -> dict[str, str]:
    """Return the other tasks of this release that the model's class serves, and why they are not asked."""
    called = served(model)
    return {
        name: "samebits calls no pipeline of this task for this class"
        for name, task in transformers.pipelines.SUPPORTED_TASKS.items()
        if name not in called
        and any(_has(auto.__name__, model) for auto in task["pt"] if auto.__name__ != _ANY)
    }


def _has(auto: str, model: Any) -> bool:
    """Return True if an Auto class of this release loads the model's class for its config."""
    config, name = model.config, type(model).__name__
    if str((getattr(config, "auto_map", None) or {}).get(auto, "")).endswith(f".{name}"):
        return True
    mapping = getattr(getattr(transformers, auto, None), "_model_mapping", {})
    if type(config) not in mapping:
        return False
    mapped = mapping[type(config)]
    return name in [each.__name__ for each in (mapped if isinstance(mapped, tuple) else (mapped,))]


def arguments_of(call: Call, model: Any) -> Facts:
    """Return the arguments of a call; a model that does not generate gets none for that.

    One that returns codes of a sound unless it is asked for the sound is asked for it. One whose config has a number
    of frames gets no other.
    """
    if hasattr(model.config, _FRAMES):
        call = call._replace(arguments={n: v for n, v in call.arguments.items() if n != _FRAMES})
    if (own := call.arguments.get(_OF_GENERATE)) is None:
        return call.arguments
    if not getattr(model, "can_generate", lambda: False)():
        return {name: v for name, v in call.arguments.items() if name != _OF_GENERATE}
    has_sound = _SOUND in inspect.signature(model.generate).parameters
    return {**call.arguments, _OF_GENERATE: {**own, _SOUND: True}} if has_sound else call.arguments


def missing(name: str, loaded: Loaded, source: Source) -> str:
    """Return what the checkpoint lacks for a task; '' if it has all."""
    needs = TASKS[name].needs
    if "tokenizer" in needs and loaded.tokenizer is None:
        return "the checkpoint has no tokenizer"
    if source.options or source.model_class:
        return "the model is loaded by a class or options of its own"
    folder = Path(source.where)
    if "processor" in needs and folder.is_dir() and not any((folder / f).is_file() for f in FILES):
        return "the checkpoint has no processor"
    return ""
