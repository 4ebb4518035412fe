"""questions.processors: sounds in both precisions, kernels against torch's, and code put back."""

import dataclasses
import enum
import importlib.util
import json
import os
import sys
import tempfile
import types
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypedDict

import cells
import numpy as np
import tokenizers
import torch
import transformers
from raising import raised
from samebits_probe.cell import cell
from samebits_probe.cell.outcomes import Clock
from samebits_probe.cell.session import Session
from samebits_probe.model.load import Source
from samebits_probe.questions.processors import (
    arrays,
    calls,
    counts,
    options,
    phase,
    postprocessing,
    processors,
    resampling,
    samples,
    steps,
    widened,
)

KINDS = {
    "wav2vec2": "Wav2Vec2FeatureExtractor",
    "whisper": "WhisperFeatureExtractor",
    "seamless_m4t": "SeamlessM4TFeatureExtractor",
}


def source_of(model_type, **content):
    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    if content:
        (folder / "preprocessor_config.json").write_text(json.dumps(content))
    return Source(str(folder), None, True, "float32", "default", "cpu")


def part_of(model_type, name="feature extractor", **content):
    return processors.facts(source_of(model_type, **content))["parts"][name]


def test_a_checkpoint_without_the_files_has_no_facts():
    assert processors.facts(source_of("wav2vec2")) is None


def with_options(model_type, **content):
    part = processors.facts(source_of(model_type, **content))["parts"]
    (name,) = (n for n in part if n.endswith(options.__name__.rpartition(".")[2]))
    return part[name]


def test_options_are_those_that_a_release_names_with_other_values():
    keys = {"return_attention_mask": False, "padding_side": "right"}
    content = {"feature_extractor_type": KINDS["wav2vec2"], **keys}
    part = with_options("wav2vec2", **content)
    assert part["role"] == "options"
    base = "two of different lengths"
    mask, cut, side, names = (
        f"{base}, return_attention_mask=true",
        f'{base}, padding="max_length", max_length=4000, truncation=true',
        f'{base}, padding_side="left" in from_pretrained',
        "model_input_names in from_pretrained",
    )
    cases = part["cases"]
    assert {base, mask, cut, side, names, f"{mask} in from_pretrained"} <= cases.keys()
    assert cases[mask]["outputs"] == cases[f"{mask} in from_pretrained"]["outputs"]
    assert cases[mask]["outputs"].keys() > cases[base]["outputs"].keys()
    assert cases[f"{mask} in from_pretrained"]["like"] == mask
    assert {c.get("without") for c in cases.values()} == {None, base, "model_input_names"}
    assert cases[cut]["outputs"]["input_values"]["shapes"] == [[2, 4000]]
    assert cases[side]["outputs"] != cases[base]["outputs"]
    # only keys of the file are taken
    assert cases[names]["outputs"] == cases["model_input_names"]["outputs"]


def test_a_switch_is_only_put_on_where_it_has_what_it_needs():
    class Images:
        do_resize, do_center_crop, do_rescale, do_flip = True, False, False, False
        size, crop_size, rescale_factor = {"height": 32, "width": 24}, None, 1 / 255
        image_mean, image_std, resample = [0.5, 0.5, 0.5], 0.5, 2

        def preprocess(
            self,
            images,
            do_resize=None,
            do_center_crop=None,
            do_rescale=None,
            do_flip=None,
            size=None,
            image_mean=None,
            image_std=None,
            resample=None,
        ):
            """Take options by name."""

    assert dict(options._options_of_pixels(Images())) == {
        "do_resize": {"do_resize": False},
        "do_rescale": {"do_rescale": True},
        "do_flip": {"do_flip": True},
        "size": {"size": {"height": 16, "width": 12}},
        "image_mean": {"image_mean": [0.25, 0.5, 0.75]},
        "resample": {"resample": 3},
    }


def test_a_processor_that_empties_its_options_takes_them_from_no_later_call():
    def emptying(_processor, _made, images_kwargs=None, **_options):
        return {"result": images_kwargs.pop("do_rescale", None)}

    nested = {"images_kwargs": {"do_rescale": False}}
    asked = options._with(emptying, nested)
    assert [asked(None, None)["result"] for _ in range(2)] == [False, False]
    assert nested == {"images_kwargs": {"do_rescale": False}}


def session_of(run, **questions):
    """Return the session of a checkpoint of sounds without weights."""
    source = source_of("wav2vec2", feature_extractor_type="Wav2Vec2FeatureExtractor")
    model = {"source": source.where, "trust_remote_code": False, "questions": questions}
    return Session(cells.job(source.where, model, run=run))


def answers_of(run, **questions):
    """Return what the phase answers for a checkpoint of sounds."""
    session = session_of(run, **questions)
    phase.observe(session)
    assert not session.skips
    return session.signals.get("answers", {})


def test_the_phase_answers_in_run_a_where_it_is_asked():
    (answer,) = answers_of("a", processors={}).values()
    assert answer["parts"].keys() == {"feature extractor", "feature extractor, with options"}
    assert answers_of("a") == answers_of("b", processors={}) == {}


def test_a_checkpoint_whose_model_does_not_load_has_its_processors_asked():
    outcome = cell.observe(session_of("a", processors={}))
    assert (outcome["status"], outcome["failure"]["phase"]) == ("failed", "load")
    assert outcome["signals"]["answers"]["processors"]["parts"]["feature extractor"]["cases"]
    outcome = cell.observe(session_of("a"))
    assert (outcome["status"], "answers" in outcome["signals"]) == ("failed", False)


def test_every_kind_of_sound_is_asked_in_both_precisions():
    for model_type, name in KINDS.items():
        part = part_of(model_type, feature_extractor_type=name)
        assert (part["class_name"], part["backend"]) == (name, "python")
        assert part["settings"]["sampling_rate"] == "16000"
        assert part["cases"]["44.1 kHz"]["raised"] == "ValueError"
        case = part["cases"]["1 s"]
        assert case["outputs"].keys() == case["promoted"].keys()
        (key,) = (k for k in case["outputs"] if k.startswith("input"))
        assert case["outputs"][key]["dtype"] == "float32"
        assert case["promoted"][key]["dtype"] == "float64", model_type
        assert "not_promoted" not in case
        assert case["steps"]
        own, promoted = (np.array(case[k][key]["sample"]) for k in ("outputs", "promoted"))
        assert np.abs(own - promoted).max() < 1e-3


@dataclasses.dataclass
class Counted:
    num_image_tokens: list[int] | None = None
    num_audio_tokens: list[int] | None = None


class Counting:
    def get_number_of_image_patches(self, height, width, images_kwargs=None):
        return height * width if images_kwargs == {} else None

    def _get_num_multimodal_tokens(self, image_sizes=None, audio_lengths=None, **kwargs):
        if audio_lengths is not None:
            return Counted(num_audio_tokens=[length // 640 for length in audio_lengths])
        return Counted(num_image_tokens=[height + width for height, width in image_sizes])


def test_numbers_of_a_size_are_asked_of_each_method_that_a_processor_has():
    made = counts.calls(Counting())
    returned = {
        name: processors.facts_of_outputs(call.called(Counting(), call.made()))
        for name, call in made.items()
        if not call.counted
    }
    patches = returned["get_number_of_image_patches, an image of 480 x 360"]["number"]
    assert patches["sample"] == [480 * 360]
    tokens = returned["_get_num_multimodal_tokens, an image of 97 x 64"]
    assert list(tokens) == ["num_image_tokens"]
    assert tokens["num_image_tokens"]["sample"] == [161]
    tokens = returned["_get_num_multimodal_tokens, a sound of 16000"]
    assert tokens["num_audio_tokens"]["sample"] == [25]
    assert not any("a video" in name for name in made)
    assert counts.calls(object()) == {}


class Cuts:
    """Cuts images into tiles of its size, and counts one more than it makes of an image of one tile, if it is planted."""

    def __init__(self, size, planted=0):
        self.size, self.planted = size, planted

    def get_number_of_image_patches(self, height, width, images_kwargs=None):
        tiles = (height // 48) * (width // 32)
        return 1 + (self.planted if tiles == 1 else tiles)


def test_an_image_of_the_processors_own_size_is_counted():
    name = "get_number_of_image_patches, an image of 48 x 32"
    given = {}
    for planted in (0, 1):
        cuts = Cuts({"height": 48, "width": 32}, planted)
        made = counts.calls(cuts)
        given[planted] = {
            case: call.called(cuts, call.made())["number"] for case, call in made.items()
        }
    assert {case for case in given[0] if given[0][case] != given[1][case]} == {name}
    for size in ({"shortest_edge": 48}, 48, None):
        assert name not in counts.calls(Cuts(size))


class Hears:
    """A processor of texts with sounds, whose template reads a sound at another rate than its own."""

    audio_token, tokenizer, image_processor = "<sound>", None, None

    def __init__(self, rate):
        self.feature_extractor = type("Extractor", (), {"sampling_rate": rate})()

    def __call__(self, text=None, audio=None, sampling_rate=None, labels=False, **kwargs):
        assert sampling_rate in (None, self.feature_extractor.sampling_rate)
        return {"lengths": np.array([len(sound) for sound in audio])}

    def apply_chat_template(self, messages, **kwargs):
        (part, _question) = messages[0]["content"]
        load = transformers.processing_utils.load_audio
        sound = load(part["path"], sampling_rate=16_000) if "path" in part else part["audio"]
        return {"lengths": np.array([len(sound)])}


def test_sounds_are_given_at_the_rate_of_the_processor_and_read_at_the_one_that_is_asked_for():
    hears = Hears(8_000)
    made = calls.of("processor", hears, talks=True)
    each = made["two texts of different lengths, a sound each"]
    assert each.called(hears, each.made())["lengths"].tolist() == [8_000, 4_000]
    case = made["a conversation with a sound by its path"]
    if not hasattr(transformers.processing_utils, "load_audio"):
        raised(calls.NotAsked, case.called, hears, case.made())
        return
    before = transformers.processing_utils.load_audio
    outputs = case.called(hears, case.made())
    assert outputs["sampling_rate"].tolist() == [16_000]
    assert outputs["lengths"].tolist() == [8_000]
    assert transformers.processing_utils.load_audio is before
    assert dict(options._switches(hears)) == {"labels": True}


class Counts:
    """A processor of texts with images, whose count has a patch too many if ``more`` is 1."""

    image_token, image_processor, tokenizer = "<image>", object(), object()

    def __init__(self, more=0, marks=True):
        self.more, self.marks = more, marks

    def __call__(self, text, images, return_tensors=None, return_mm_token_type_ids=False):
        height, width = images[0].shape[:2]
        ids = torch.tensor([[0] * 3 + [1] * (height // 8) * (width // 8)])
        return {"input_ids": ids} | ({"mm_token_type_ids": ids} if self.marks else {})

    def _get_num_multimodal_tokens(self, image_sizes=None):
        return Counted([(h // 8) * (w // 8) + self.more for h, w in image_sizes])


def test_a_call_counts_its_own_tokens_beside_the_method():
    of = "an image of 97 x 64"
    for more in (0, 1):
        made = counts.calls(Counts(more))
        call = made[f"the call, {of}"]
        assert call.counted == f"_get_num_multimodal_tokens, {of}"
        assert call.called(Counts(more), call.made()) == {"number": 96}
    assert not any("4000" in name for name in made if name.startswith("the call"))
    raised(calls.NotAsked, call.called, Counts(marks=False), call.made())


def test_a_method_that_is_missing_is_asked_where_the_processor_of_the_package_calls_it():
    folder = Path(tempfile.mkdtemp())
    folder.joinpath("image_processing_own.py").write_text("class Images:\n    pass\n")
    call = "self.image_processor.get_number_of_image_patches(1, 2)"
    spec = importlib.util.spec_from_file_location("own", folder / "image_processing_own.py")
    own = sys.modules["own"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    try:
        assert counts.calls(own.Images(), "image processor") == {}
        folder.joinpath("processing_own.py").write_text(call)
        name, made = next(iter(counts.calls(own.Images(), "image processor").items()))
        assert name.startswith("get_number_of_image_patches, an image of ")
        raised(AttributeError, made.called, own.Images(), made.made())
        assert counts.calls(own.Images(), "video processor") == {}
    finally:
        del sys.modules["own"]


class Films:
    """An image processor that takes videos, each of a multiple of four frames."""

    def preprocess(self, images, videos=None, return_tensors=None):
        """Take both."""

    def __call__(self, images=None, videos=None, return_tensors=None):
        assert images is None
        assert all(len(video) % 4 == 0 for video in videos), "cannot reshape"
        return {"n_frames": np.array([len(video) for video in videos])}


def test_an_image_processor_that_takes_videos_gets_some_of_several_lengths():
    made = calls.of("image processor", Films())
    eight, six = (made[f"a video: {name}"] for name in ("8 frames 64 x 48", "6 frames"))
    assert eight.called(Films(), eight.made())["n_frames"].tolist() == [8]
    raised(AssertionError, six.called, Films(), six.made())
    assert not any("video" in name for name in calls.of("image processor", Counting()))


class Talks:
    """A processor whose template in its code reads a video; it samples four frames, or all."""

    video_token, tokenizer, image_processor, feature_extractor = "<video>", None, None, None

    def __init__(self, samples_frames=True):
        self.asked = (lambda metadata: [0, 8, 16, 23]) if samples_frames else None

    def __call__(self, text, videos, padding=None, return_tensors=None, video_metadata=None):
        if return_tensors is None:
            return {"input_ids": [[len(videos)]]}
        return {"fps": np.array([given["fps"] for given in video_metadata or ()])}

    def apply_chat_template(self, messages, **kwargs):
        (part, _question) = messages[0]["content"]
        base = sys.modules.get("transformers.video_processing_utils")
        fetch = getattr(getattr(base, "BaseVideoProcessor", None), "fetch_videos", None)
        utils = transformers.processing_utils
        if hasattr(utils, "load_video"):
            read = utils.load_video(
                part["path"], **({"sample_indices_fn": self.asked} if self.asked else {})
            )
        else:
            ((videos, metadata),) = ([*zip(*fetch(None, [part["path"]], self.asked))],)
            read = videos[0], metadata
        return {"pixel_values": np.array(read[0])}


def test_a_conversation_names_a_video_by_its_path_and_the_release_samples_it():
    made = calls.of("processor", Talks())
    case = made["a conversation with a video by its path"]
    utils = transformers.processing_utils
    if not hasattr(utils, "load_video"):
        return  # what it reads needs torchvision
    own = utils.load_video
    for talks, count in ((Talks(), 4), (Talks(samples_frames=False), 24)):
        outputs = case.called(talks, None)
        assert outputs["n_frames"].tolist() == [count]
        assert outputs["pixel_values"].shape == (count, 32, 32, 3)
    assert utils.load_video is own


def test_a_video_comes_without_tensors_and_with_its_metadata():
    made = calls.of("processor", Talks())
    plain = made["a text and a video, no tensors"]
    assert plain.called(Talks(), plain.made()) == {"input_ids": [[1]]}
    call = made["a text and a video, its metadata"]
    typed = getattr(transformers.processing_utils, "VideosKwargs", None)
    if "video_metadata" in getattr(typed, "__annotations__", {}):
        assert call.called(Talks(), call.made())["fps"].tolist() == [4.0]
    else:
        raised(calls.NotAsked, call.called, Talks(), call.made())


class Speeds(Talks):
    """Writes the speed of each video; the planted one that of the first for all of a text."""

    is_planted = False

    def __call__(self, text, videos, padding=None, return_tensors=None, video_metadata=None):
        speeds = [given["fps"] for given in video_metadata or ()]
        return {"fps": np.array(speeds[:1] * len(speeds) if self.is_planted else speeds)}


def test_two_videos_of_a_text_have_speeds_of_their_own_and_a_planted_mixup_is_seen():
    call = calls.of("processor", Speeds())[
        "a text and two videos of different speeds, their metadata"
    ]
    typed = getattr(transformers.processing_utils, "VideosKwargs", None)
    if "video_metadata" not in getattr(typed, "__annotations__", {}):
        raised(calls.NotAsked, call.called, Speeds(), call.made())
        return
    planted = type("Planted", (Speeds,), {"is_planted": True})()
    fps = [call.called(side, call.made())["fps"].tolist() for side in (planted, Speeds())]
    assert fps == [[4.0, 4.0], [4.0, 2.0]]


class Whole:
    """A processor of two parts, each of which from_pretrained takes from its caller, too."""

    def __init__(self, image_processor=None, tokenizer=None, patch_size=8):
        self.image_processor, self.tokenizer = image_processor, tokenizer
        self.patch_size = patch_size

    @classmethod
    def from_pretrained(cls, **given):
        return cls(**({"image_processor": Piece(), "tokenizer": Piece()} | given))


class Deaf(Whole):
    """Is planted: a part of the caller is thrown away."""

    @classmethod
    def from_pretrained(cls, **_given):
        return cls(Piece(), Piece())


class Twice(Whole):
    """Is planted: its files give a part that the caller gives, too."""

    @classmethod
    def from_pretrained(cls, **given):
        return cls(Piece(), **given)


class Piece:
    def from_pretrained(self):
        """Is what makes it a part."""


def test_a_part_of_the_caller_is_the_processors_and_planted_ones_that_drop_or_refuse_it_are_seen():
    seen = {}
    for each in (Whole, Deaf, Twice):
        made = options._of_own_parts(each.from_pretrained())
        cases = processors._cases(each.from_pretrained(), each.from_pretrained, made, Clock(9.0))
        assert "patch_size of the caller in from_pretrained" not in cases
        mine = cases["image_processor of the caller in from_pretrained"]
        assert (mine["without"], mine["is_loaded"]) == ("parts", True)
        seen[each] = mine.get("raised") or mine["outputs"]["image_processor"]["text"]
    assert seen == {Whole: '["of the caller"]', Deaf: '["of the files"]', Twice: "TypeError"}


class Limited:
    """An image processor whose calls read ``max_pixels``, and whose attribute has no effect if it is deaf."""

    max_pixels, image_mean, image_std, return_rows = 10_000, [0.5] * 3, [0.5] * 3, None
    is_deaf = False

    def preprocess(
        self, images, max_pixels=None, image_mean=None, image_std=None, return_rows=None
    ):
        """Take options by name."""

    def __call__(self, images, return_tensors=None, max_pixels=None, **options):
        own = 10_000 if self.is_deaf else self.max_pixels
        return {"n": np.array(max_pixels or own), **options}


def test_options_are_set_on_the_object_and_means_come_as_arrays():
    sys.path.append(os.environ["SAMEBITS_PILLOW"])
    made = options.of("image processor", Limited())
    base = "RGB 97 x 64"
    on_object = made[f"{base}, max_pixels=4096 set on the object"]
    assert (on_object.like, on_object.given) == (f"{base}, max_pixels=4096", {})
    assert on_object.called(Limited(), None)["n"] == 4096
    deaf = type("Deaf", (Limited,), {"is_deaf": True})()
    assert on_object.called(deaf, None)["n"] == 10_000
    arrays_of = f"{base}, image_mean=array([0.25, 0.5, 0.75]), image_std=array([0.5, 0.25, 0.5])"
    assert isinstance(made[arrays_of].called(Limited(), None)["image_mean"], np.ndarray)
    assert made[f"{base}, return_rows=true"].called(Limited(), None)["return_rows"] is True


class Means(Limited):
    """An image processor whose calls read a mean, of which the planted one has no list of its own."""

    shared = [0.5] * 3

    def __init__(self, is_planted=False):
        self.image_mean = self.shared if is_planted else [0.5] * 3

    def __call__(self, images, return_tensors=None, **options):
        return {"mean": np.array(self.image_mean)}


def test_a_list_is_changed_in_place_in_another_object_and_put_back():
    name = "RGB 97 x 64, after image_mean=[0.25, 0.5, 0.75] in another object"
    for is_planted, mean in ((True, [0.25, 0.5, 0.75]), (False, [0.5] * 3)):
        made = options.of("image processor", Means(is_planted))
        assert made[name].like == made[name].without == "RGB 97 x 64"
        assert made[name].called(Means(is_planted), None)["mean"].tolist() == mean
        assert Means.shared == [0.5] * 3
    assert not any("max_pixels=4096 in another object" in name for name in made)


class Prompted:
    """A processor of boxes and points, which is given each in one image or in both."""

    image_processor, tokenizer = Limited(), object()

    def __call__(self, images, text=None, input_boxes=None, input_points=None, input_labels=None,
                 return_tensors=None):  # fmt: skip
        boxes = [len(of_image or ()) for of_image in input_boxes or ()]
        points = [len(of_image) for of_image in input_points or ()]
        return {"boxes": boxes, "points": points, "texts": len(text or ())}


def test_boxes_and_points_are_given_in_both_images_and_in_one():
    sys.path.append(os.environ["SAMEBITS_PILLOW"])
    made = calls.of("processor", Prompted())
    given = {
        name.removeprefix("two images, "): call.called(Prompted(), call.made())
        for name, call in made.items()
        if name.startswith("two images, a")
    }
    assert given["a box in the second"] == {"boxes": [0, 1], "points": [], "texts": 2}
    assert given["a box in the first and two in the second"]["boxes"] == [1, 2]
    assert given["a point in the first and two in the second"]["points"] == [1, 2]
    assert given["a point in the first and two in the second, by objects"]["points"] == [1, 1]
    assert not any(name.startswith("two images, a") for name in calls.of("processor", Mixed(8_000)))


class Paged:
    """A processor whose tokenizer takes words in boxes, and which may lose those of a batch."""

    image_processor = object()

    class Boxed:
        def __call__(self, text, text_pair=None, boxes=None):
            raise NotImplementedError

    tokenizer = Boxed()

    def __init__(self, planted=False):
        self.planted = planted

    def __call__(self, images, text=None, text_pair=None, boxes=None, padding=False, **_options):
        if boxes is None:
            raise ValueError
        return {
            "ids": len(text_pair or text),
            "boxes": 0 if self.planted and padding else str(boxes),
        }


def test_a_page_comes_with_its_words_and_their_boxes():
    sys.path.append(os.environ["SAMEBITS_PILLOW"])
    answers = {}
    for planted in (False, True):
        processor = Paged(planted)
        made = {n: c for n, c in calls.of("processor", processor).items() if "words" in n}
        answers[planted] = {n: c.called(processor, c.made()) for n, c in made.items()}
    sizes = {name: answer["ids"] for name, answer in answers[False].items()}
    batch = "two pages with unlike numbers of words"
    assert sizes == {"a page and its words": 3, "a page, a question and its words": 3, batch: 2}
    differing = [name for name in sizes if answers[False][name] != answers[True][name]]
    assert differing == [batch]
    without = Paged()
    without.tokenizer = lambda text: text
    assert not [name for name in calls.of("processor", without) if "words" in name]


class Spans:
    """A processor of texts with images that tells where they stand in the text; the planted one miscounts the second."""

    image_processor, image_token = Limited(), "<image>"
    is_planted = False

    def __init__(self):
        self.tokenizer = types.SimpleNamespace(padding_side="right")

    def __call__(
        self,
        text,
        images,
        padding_side=None,
        text_kwargs=None,
        return_text_replacement_offsets=False,
        **common,
    ):
        own = "right" if self.is_planted else self.tokenizer.padding_side
        given = {"side": padding_side or own}
        if (text_kwargs or {}).get("return_text_replacement_offsets"):
            length = 6 if self.is_planted else 7
            given["text_replacement_offsets"] = [
                [{"new_span": (length * i, 7)} for i in range(part.count("<"))] for part in text
            ]
        return given


def test_places_of_two_images_in_a_text_and_the_side_of_the_tokenizer_are_asked_for():
    sys.path.append(os.environ["SAMEBITS_PILLOW"])
    planted, twin = type("Planted", (Spans,), {"is_planted": True})(), Spans()
    made = options.of("processor", twin)
    (name,) = (n for n in made if "two images" in n and "return_text_replacement_offsets" in n)
    spans = [
        processors.facts_of_outputs(made[name].called(side, made[name].made()))[
            "text_replacement_offsets new_span"
        ]["sample"]
        for side in (planted, twin)
    ]
    assert spans == [[0, 7, 6, 7, 0, 7], [0, 7, 7, 7, 0, 7]]
    (name,) = (n for n in made if n.endswith('padding_side="left" set on the object'))
    assert made[name].like == name.removesuffix(" set on the object")
    given = [made[name].called(side, made[name].made())["side"] for side in (planted, twin)]
    assert given == ["right", "left"]


class Mixed(Hears):
    """A processor of images, videos and sounds; the planted one puts sounds before all else."""

    image_processor, image_token, video_token = Limited(), "<image>", "<video>"
    is_planted = False

    def apply_chat_template(self, messages, **kwargs):
        kinds = [part["type"] for part in messages[0]["content"] if part["type"] != "text"]
        kinds = sorted(kinds) if self.is_planted else kinds
        ids = [["image", "video", "audio"].index(kind) for kind in kinds]
        return {"input_ids": np.array(ids), "lengths": np.array(len(ids))}


def test_several_kinds_of_media_are_in_one_conversation_and_a_planted_order_is_seen():
    sys.path.append(os.environ["SAMEBITS_PILLOW"])
    planted, twin = type("Planted", (Mixed,), {"is_planted": True})(8_000), Mixed(8_000)
    made = calls.of("processor", twin, talks=True)
    forth, back = (
        made[f"a conversation with {what}, in one call"]
        for what in (
            "an image and a video and a sound",
            "a sound and a video and an image",
        )
    )
    assert forth.called(twin, forth.made())["input_ids"].tolist() == [0, 1, 2]
    assert back.called(twin, back.made())["input_ids"].tolist() == [2, 1, 0]
    assert forth.called(planted, forth.made())["input_ids"].tolist() == [2, 0, 1]
    two = made["a conversation with two sounds, in one call"]
    assert two.called(twin, two.made())["input_ids"].tolist() == [2, 2]
    several = "two conversations of different lengths with an image each, in one call"
    assert made[several].called(Batches(8_000), made[several].made())["lengths"].tolist() == [1, 2]
    only = calls.of("processor", Hears(8_000), talks=True)
    assert not any(" and a " in name for name in only if name.startswith("a conversation"))


class Batches(Mixed):
    """A processor that takes conversations side by side."""

    def apply_chat_template(self, messages, **kwargs):
        assert kwargs["padding"] is True
        return {"lengths": np.array([len(conversation) for conversation in messages])}


class RowsKwargs(TypedDict, total=False):
    do_resize: bool | None
    with_rows: bool | None
    max_rows: int | None
    order: bool | str | None


class OwnKwargs(TypedDict, total=False):
    images_kwargs: RowsKwargs


class Own:
    """A processor with a switch of its own, which takes two texts with an image each."""

    image_token, tokenizer, feature_extractor = "<image>", type("Tokenizer", (), {})(), None
    image_processor = Limited()
    valid_processor_kwargs = OwnKwargs
    is_planted = False

    def __call__(self, text=None, images=None, with_rows=False, **options):
        """Return the number of texts; the planted one looks for a third one where it tells of no rows."""
        if with_rows and self.is_planted:
            text[2]
        return {"n": np.array(len(text)), "rows": np.array(with_rows)}


def test_a_switch_that_only_the_typed_arguments_have_is_given_and_a_planted_refusal_is_seen():
    sys.path.append(os.environ["SAMEBITS_PILLOW"])
    planted = type("Planted", (Own,), {"is_planted": True})()
    of_planted, of_twin = (
        processors._cases(
            each, partial(lambda own: own, each), options.of("processor", each), Clock(60)
        )
        for each in (planted, Own())
    )
    (case,) = (name for name in of_twin if name.endswith(", with_rows=true"))
    assert not any("max_rows" in name or "order" in name for name in of_twin)
    assert of_planted[case]["raised"] == "IndexError"
    assert of_twin[case]["outputs"] != of_twin[of_twin[case]["without"]]["outputs"]


class Open(Limited):
    """An image processor with switches that nothing sets: only those that need nothing else are given."""

    def preprocess(
        self,
        images,
        do_pad: bool | None = None,
        do_center_crop: bool | None = None,
        crop_size: dict | None = None,
        pad: bool | str | None = None,
    ):
        """Take options by name."""


def test_a_switch_that_nothing_sets_is_put_on():
    given = dict(options._options_of_pixels(Open()))
    assert given.keys() - {"max_pixels"} == {"do_pad"}
    assert given["do_pad"] == {"do_pad": True}


def test_facts_are_the_same_each_time():
    content = {"feature_extractor_type": "Wav2Vec2FeatureExtractor"}
    assert part_of("wav2vec2", **content) == part_of("wav2vec2", **content)


def test_settings_of_the_file_are_read():
    part = part_of(
        "wav2vec2", feature_extractor_type="Wav2Vec2FeatureExtractor", do_normalize=False
    )
    assert part["settings"]["do_normalize"] == "false"


def test_images_without_pillow_say_so():
    if "PIL" in sys.modules:
        return
    try:
        import PIL  # noqa: F401
    except ImportError:
        part = part_of("vit", "image processor", image_processor_type="ViTImageProcessor")
        assert "absent" in part or "raised" in part, part


def test_a_class_that_does_not_exist_is_a_result():
    part = part_of("wav2vec2", feature_extractor_type="NoSuchFeatureExtractor")
    assert part["raised"]
    assert "class_name" not in part


def test_the_code_of_the_release_is_put_back():
    module = transformers.audio_utils
    before, defaults = vars(module)["np"], module.spectrogram.__defaults__
    with widened.in_float64():
        assert vars(module)["np"].float32 is np.float64
        assert vars(module)["np"].ndarray is np.ndarray
        assert torch.zeros(1).dtype == torch.float64
    assert vars(module)["np"] is before
    assert module.spectrogram.__defaults__ == defaults
    assert torch.zeros(1).dtype == torch.float32


def test_steps_are_recorded_and_the_class_is_put_back():
    extractor = transformers.Wav2Vec2FeatureExtractor()
    before = dict(vars(type(extractor)))
    with steps.recorded(extractor) as taken:
        extractor(samples.sound(100), sampling_rate=16_000, return_tensors="np")
    assert [step["name"] for step in taken] == ["pad", "zero_mean_unit_var_norm"]
    assert dict(vars(type(extractor))) == before


def test_the_kernels_are_those_of_torch_with_antialias():
    sys.path.append(os.environ["SAMEBITS_PILLOW"])
    image = samples.picture(37, 53).astype(np.float64) / 4 + 90  # nothing is clipped
    tensor = torch.from_numpy(image).permute(2, 0, 1)[None]
    for size in ((20, 31), (80, 71), (37, 20)):
        for number, mode in ((2, "bilinear"), (3, "bicubic")):
            expected = torch.nn.functional.interpolate(
                tensor, size=size, mode=mode, antialias=True, align_corners=False
            )[0].permute(1, 2, 0)
            result = resampling.resampled(image, size, number)
            # Pillow gives its weights in float32
            assert np.abs(result - expected.numpy()).max() < 1e-4, (size, mode)


def test_arrays_of_several_lengths_are_hashed_by_their_values():
    pieces = [np.ones(3, np.float32), np.ones(2, np.float32)]
    ragged = np.empty(2, object)
    ragged[:] = pieces
    assert arrays.facts(ragged) == arrays.facts(pieces)
    assert arrays.facts(ragged)["shapes"] == [[3], [2]]


class Mode(enum.Enum):
    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


@contextmanager
def torchvision():
    """Put a torchvision in place whose resize computes in 8 bits, as the real one does."""

    def resize(image, size, interpolation=Mode.BILINEAR, max_size=None, antialias=True):
        mode = interpolation.value
        options = {} if mode == "nearest" else {"antialias": antialias}
        batch = image.reshape(-1, *image.shape[-3:]).to(torch.float32)
        result = torch.nn.functional.interpolate(batch, size=tuple(size), mode=mode, **options)
        result = result.reshape(*image.shape[:-2], *size)
        return (
            result.round().clamp(0, 255).to(torch.uint8) if image.dtype == torch.uint8 else result
        )

    names = ("torchvision", "torchvision.transforms", "torchvision.transforms.v2")
    functional = f"{names[-1]}.functional"
    modules = {name: types.ModuleType(name) for name in (*names, functional)}
    modules[functional].resize = resize
    before = dict(sys.modules)
    sys.modules.update(modules)
    try:
        yield modules[functional]
    finally:
        for name in modules:
            sys.modules.pop(name)
        sys.modules.update({name: before[name] for name in modules if name in before})


def test_the_resize_of_torchvision_runs_in_float64_with_the_kernel_that_it_is_asked_for():
    sys.path.append(os.environ["SAMEBITS_PILLOW"])
    image = torch.from_numpy(samples.picture(37, 53)).permute(2, 0, 1)[None]
    with torchvision() as functional:
        own = functional.resize
        with widened.in_float64() as notes:
            for mode, kernel in ((Mode.BILINEAR, 2), (Mode.BICUBIC, 3)):
                result = functional.resize(image, [20, 31], interpolation=mode, antialias=True)
                last = image[0].permute(1, 2, 0).numpy()
                expected = resampling.resampled(last, (20, 31), kernel)
                assert result.dtype == torch.float64
                assert np.array_equal(result[0].permute(1, 2, 0).numpy(), expected)
            assert not notes.reasons
            result = functional.resize(image.double() / 255, [20, 31], interpolation=Mode.BILINEAR)
            assert float(result.max()) <= 1.0
            functional.resize(image, [20, 31], interpolation=Mode.NEAREST)
            functional.resize(image, [20, 31], antialias=False)
            assert len(notes.reasons) == 1
        assert functional.resize is own


class Auto:
    """An Auto class that notes in ``asked`` how it is asked for a processor."""

    @classmethod
    def from_pretrained(cls, _where, **options):
        use_fast = options.pop("use_fast", None)
        cls.asked.append(use_fast)
        return Tiny("torchvision" if use_fast else "pil")


class AutoOfBackends(Auto):
    @classmethod
    def from_pretrained(cls, _where, **options):
        backend = options.pop("backend", None)
        cls.asked.append(backend)
        return Tiny(backend or "pil")


class Tiny:
    def __init__(self, backend):
        self.backend = backend

    def __call__(self, images, return_tensors):
        return {"pixel_values": np.zeros((1, 3, 2, 2), np.float32)}


def asked_backend(auto, spec):
    """Return the parts of a stack with or without torchvision, and how the Auto class was asked."""
    auto.asked = []
    find, own = importlib.util.find_spec, transformers.__dict__.get("AutoImageProcessor")
    importlib.util.find_spec = lambda name, *rest: (
        spec if name == "torchvision" else find(name, *rest)
    )
    transformers.AutoImageProcessor = auto
    try:
        source = source_of("vit", image_processor_type="Tiny")
        return processors.facts(source)["parts"], auto.asked
    finally:
        importlib.util.find_spec = find
        if own is None:
            del transformers.AutoImageProcessor
        else:
            transformers.AutoImageProcessor = own


def test_a_stack_with_torchvision_is_asked_for_its_backend_as_the_release_names_it():
    for auto, name in ((Auto, True), (AutoOfBackends, "torchvision")):
        parts, asked = asked_backend(auto, spec=object())
        assert parts["image processor"]["backend"] == "pil"
        other = parts["image processor, torchvision on demand"]
        assert other["backend"] == "torchvision"
        assert other["cases"]["small array"]["outputs"]
        assert set(asked) == {None, name}


def test_a_stack_without_torchvision_says_so():
    parts, asked = asked_backend(Auto, spec=None)
    other = parts["image processor, torchvision on demand"]
    reason = "torchvision is not installed in this environment"
    assert other == {"absent": reason, "role": "on demand"}
    assert set(asked) == {None}


class Detector:
    def post_process_object_detection(self, outputs, threshold=0.5, target_sizes=None):
        return [
            {"boxes": outputs.pred_boxes[i] * size[0], "labels": outputs["logits"][i].argmax(-1)}
            for i, size in enumerate(target_sizes)
        ]

    def post_process_semantic_segmentation(self, outputs, target_sizes=None):
        return list(outputs.logits.argmax(1))

    def post_process_panoptic_segmentation(self, outputs, target_sizes=None):
        assert outputs.pred_masks.shape[1] == outputs.logits.shape[1]
        return [
            {
                "segmentation": None,
                "segments_info": [{"id": 1, "score": 0.5}, {"id": 2, "score": 1.0}],
            }
        ]


def test_each_method_gets_the_outputs_that_it_reads():
    calls = postprocessing.calls(Detector())
    results = {name: call(Detector()) for name, call in calls.items()}
    assert set(results["post_process_object_detection"]) == {
        "0.boxes",
        "0.labels",
        "1.boxes",
        "1.labels",
    }
    (first, _) = results["post_process_semantic_segmentation"].values()
    assert first.shape == (16, 16)
    assert results["post_process_panoptic_segmentation"] == {
        "0.segmentation": "None",
        "0.segments_info.id": [1, 2],
        "0.segments_info.score": [0.5, 1.0],
    }


def test_the_outputs_are_the_same_numbers_in_both_precisions():
    own = postprocessing.seeded((3, 4), 1)
    with widened.in_float64():
        wide = postprocessing.seeded((3, 4), 1)
    assert (own.dtype, wide.dtype) == (torch.float32, torch.float64)
    assert own.double().equal(wide)


def test_texts_are_facts():
    facts = arrays.facts_of_text(["a", "\ud800"])
    assert facts["text"] == '["a", "\\ud800"]'
    assert facts["shapes"] == [[2]]
    assert facts["hash"] != arrays.facts_of_text(["a", "b"])["hash"]


class Mattes:
    """An image processor that takes no image without a trimap of its size."""

    def preprocess(self, images, trimaps):
        assert trimaps.shape == images.shape[:2]
        return {"pixel_values": np.dstack([images, trimaps])}

    def __call__(self, images, trimaps, return_tensors):
        assert return_tensors == "np"
        return self.preprocess(images, trimaps)


class Plain:
    """An image processor without trimaps."""

    def preprocess(self, images):
        return images


def test_a_processor_of_trimaps_gets_one_in_the_size_of_each_image():
    for image in (np.zeros((40, 30, 3), np.uint8), np.zeros((3, 40, 30), np.uint8)):
        trimap = calls._with_map(Mattes(), image)["trimaps"]
        assert trimap.shape == (40, 30)
        assert {*trimap.ravel().tolist()} == {0, 128, 255}
        assert calls._with_map(Plain(), image) == {}
    images = [np.zeros((8, 6, 3), np.uint8), np.zeros((4, 9, 3), np.uint8)]
    assert [m.shape for m in calls._with_map(Mattes(), images)["trimaps"]] == [(8, 6), (4, 9)]
    outputs = calls.look(Mattes(), np.zeros((40, 30, 3), np.uint8))
    assert outputs["pixel_values"].shape == (40, 30, 4)


class Reader:
    """A processor of texts with images; one that ``needs`` images takes no text without any."""

    image_processor, tokenizer, image_token, needs = object(), object(), "<image>", False
    read = b""

    def __call__(self, text=None, images=None, **_options):
        if self.needs and not images:
            raise ValueError
        return {"input_ids": np.zeros(len(text)), "pixel_values": np.zeros(len(images or ()))}

    def apply_chat_template(self, conversation, **_options):
        (file, *_) = [part.get("path") for part in conversation[0]["content"]]
        self.read = Path(file).read_bytes() if file else b""
        return self(text=["what do you see?"], images=[file] if file else None)


class Templating(Reader):
    """One whose template is made into tokens without the processor."""

    def apply_chat_template(self, conversation, **_options):
        return {"input_ids": np.zeros(len(conversation))}


def test_texts_without_images_are_asked_for_and_a_processor_that_refuses_them_is_seen():
    clean, planted = Reader(), Reader()
    planted.needs = True
    cases = calls.of("processor", clean, talks=True)
    alone = (
        "a text alone",
        "two texts of different lengths alone",
        "a text that names an image, alone",
    )
    for name in (*alone, "a conversation of text alone, in one call"):
        call = cases[name]
        assert call.called(clean, call.made()).keys() == {"input_ids", "pixel_values"}
        raised(ValueError, call.called, planted, call.made())
    assert "an image alone" in cases


def test_a_template_that_does_not_call_the_processor_is_not_asked_for_texts_alone():
    reader = Templating()
    call = calls.of("processor", reader, talks=True)["a conversation of text alone, in one call"]
    reason = raised(calls.NotAsked, call.called, reader, call.made())
    assert "does not call the processor" in str(reason)
    assert Templating.__call__ is Reader.__call__


def test_a_file_with_an_image_is_read_by_its_path_and_removed():
    reader = Reader()
    call = calls.of("processor", reader, talks=True)["a conversation with an image by its path"]
    assert "pixel_values" in call.called(reader, call.made())
    assert reader.read == samples.png_file()


def test_tensors_have_the_pixels_of_the_arrays():
    made = {name: make() for name, make in (samples.arrays() | samples.tensors()).items()}
    first = made["uint8 array, channels first"]
    assert made["uint8 tensor, channels first"].numpy().tobytes() == first.tobytes()
    two = made["two images as one tensor"].numpy()
    assert two.shape == (2, *first.shape)
    assert two[0].tobytes() == first.tobytes() != two[1].tobytes()


TOOLS = (
    "{% for message in messages %}a{% if message.tool_calls %}"
    " {{ message.tool_calls[0].function.name }}{% endif %} {% endfor %}"
)
NEEDS_CONTENT = (4, 49) <= tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 6)
"""The defect of ProcessorMixin.apply_chat_template in these releases."""


def talking(chat_template):
    """Return a processor of texts with the release's own conversations."""

    class Talking(transformers.ProcessorMixin):
        attributes = ("tokenizer",)
        tokenizer_class = "AutoTokenizer"

        def __init__(self, tokenizer=None, chat_template=None):
            super().__init__(tokenizer, chat_template=chat_template)

        def __call__(self, text=None, **_options):
            return self.tokenizer(text)

    words = {"<unk>": 0, "a": 1, "look": 2}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    return Talking(tokenizer, chat_template)


def test_a_message_that_calls_a_tool_is_asked_where_the_template_has_them():
    name = "a conversation with a call of a tool, in one call"
    assert name not in calls.of("processor", talking("a"), talks=True)
    own, planted = talking(TOOLS), talking(TOOLS)
    planted.apply_chat_template = lambda talk, **_options: [message["content"] for message in talk]
    call = calls.of("processor", own, talks=True)[name]
    assert "content" in str(raised(KeyError, call.called, planted, call.made()))
    if NEEDS_CONTENT:
        assert "content" in str(raised(KeyError, call.called, own, call.made()))
    else:
        ids = call.called(own, call.made())["input_ids"]
        assert np.ravel(ids).tolist() == [1, 1, 2, 1]
