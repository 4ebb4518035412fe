"""Processors in a checkpoint's own code, whose behaviour can depend on the release."""

import json
from pathlib import Path

from tests.support import tokenizer_kinds  # isort: skip  it makes the probes importable
from samebits_probe.model import processors

IMAGES = '''"""An image processor of a checkpoint's own."""

import numpy as np
import transformers
from transformers.image_processing_utils import BaseImageProcessor, BatchFeature
from transformers.image_transforms import center_crop, normalize, resize, rescale
from transformers.image_utils import ChannelDimension, to_numpy_array

IS_NEW = int(transformers.__version__.split(".")[0]) >= 5
LAST = ChannelDimension.LAST


class TinyImageProcessor(BaseImageProcessor):
    model_input_names = ["pixel_values"]

    def __init__(self, side=24, mean=0.5, std=0.25, **kwargs):
        super().__init__(**kwargs)
        self.side = side
        self.mean = mean
        self.std = std

    def resize(self, image, size, resample):
        return resize(image, (size, size), resample=resample, input_data_format=LAST)

    def center_crop(self, image, size):
        return center_crop(image, (size, size), input_data_format=LAST)

    def rescale(self, image, scale):
        return rescale(image, scale, input_data_format=LAST)

    def normalize(self, image, mean, std):
        return normalize(image, mean, std, input_data_format=LAST)

    def preprocess(self, images, return_tensors=None, **kwargs):
        images = images if isinstance(images, list) else [images]
        values = []
        for image in images:
            image = to_numpy_array(image.convert("RGB") if hasattr(image, "convert") else image)
            if image.shape[0] == 3:
                image = np.moveaxis(image, 0, -1)
            STEPS
            values.append(np.moveaxis(image, -1, 0))
        return BatchFeature(data={"pixel_values": values}, tensor_type=return_tensors)

    def __call__(self, images, **kwargs):
        return self.preprocess(images, **kwargs)
'''
PLAIN = """image = self.resize(image, self.side, KERNEL)
            image = self.center_crop(image, CROP)
            image = self.rescale(image, 1 / 255)
            image = self.normalize(image, MEAN, self.std)"""
FUSED = """image = self.resize(image, self.side, 2)
            image = self.center_crop(image, 20)
            if IS_NEW:
                image = self.normalize(image.astype(np.float32), self.mean * 255, self.std * 255)
            else:
                image = self.rescale(image, 1 / 255)
                image = self.normalize(image, self.mean, self.std)"""
SWAPPED = """if IS_NEW:
                image = self.center_crop(image, 20)
                image = self.resize(image, 20, 2)
            else:
                image = self.resize(image, 20, 2)
                image = self.center_crop(image, 20)
            image = self.rescale(image, 1 / 255)"""

SOUNDS = '''"""A feature extractor of a checkpoint's own."""

import numpy as np
import transformers
from transformers import SequenceFeatureExtractor
from transformers.feature_extraction_utils import BatchFeature

IS_NEW = int(transformers.__version__.split(".")[0]) >= 5


class TinyFeatureExtractor(SequenceFeatureExtractor):
    model_input_names = ["input_values"]

    def __init__(self, feature_size=1, sampling_rate=16000, padding_value=0.0, **kwargs):
        super().__init__(feature_size, sampling_rate, padding_value, **kwargs)

    def zero_mean_unit_var_norm(self, sound):
        NORM

    def __call__(self, raw_speech, sampling_rate=None, return_tensors=None, **kwargs):
        sounds = raw_speech if isinstance(raw_speech, list) else [raw_speech]
        values = [self.zero_mean_unit_var_norm(np.asarray(s, np.float32)) for s in sounds]
        shortest = min(v.shape[-1] for v in values)
        values = [v[..., :shortest] for v in values]
        return BatchFeature({"input_values": values}, tensor_type=return_tensors)
'''
ONE_NORM = "return (sound - sound.mean()) / np.sqrt(sound.var() + 1e-7)"
REORDERED = """if IS_NEW:
            scale = np.float32(1.0) / np.sqrt(sound.var() + np.float32(1e-7))
            return sound * scale - sound.mean() * scale
        return (sound - sound.mean()) / np.sqrt(sound.var() + 1e-7)"""
OTHER_VARIANCE = """ddof = 1 if IS_NEW else 0
        return (sound - sound.mean()) / np.sqrt(sound.var(ddof=ddof) + 1e-7)"""


BOXES = """
    def post_process_object_detection(self, outputs, threshold=0.5, target_sizes=None):
        scores, labels = outputs.logits.softmax(-1)[..., :-1].max(-1)
        x, y, w, h = outputs.pred_boxes.unbind(-1)
        CORNERS
        found = []
        for i, (height, width) in enumerate(target_sizes):
            keep = scores[i] > LIMIT
            scale = torch.tensor([width, height, width, height])
            found.append(
                {"scores": scores[i][keep], "labels": labels[i][keep], "boxes": (boxes[i] * scale)[keep]}
            )
        return found
"""
CENTERS = "boxes = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)"
CORNERS = """if IS_NEW:
            boxes = torch.stack([x, y, x + w, y + h], -1)
        else:
            boxes = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)"""
TENTHS = """boxes = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)
        boxes = boxes * 0.1 * 10 if IS_NEW else boxes"""


def with_boxes(corners=CENTERS, limit="threshold"):
    """Return the code of an image processor that turns outputs of a model into boxes."""
    method = BOXES.replace("CORNERS", corners).replace("LIMIT", limit)
    code = IMAGES.replace("import transformers\n", "import torch\nimport transformers\n", 1)
    return code.rstrip() + "\n" + method


_SWITCHED = """image = self.resize(image, self.side, 2)
            image = self.rescale(image, 1 / 255)
            do_normalize = self.do_normalize if do_normalize is None else do_normalize
            REFUSED
            if IGNORED:
                image = self.normalize(image, self.mean, self.std)"""


def with_option(ignored="do_normalize", kept="do_normalize", refused="pass"):
    """Return the code of an image processor that takes an option in its calls and when it is loaded."""
    places = {
        "return_tensors=None, **kwargs": "return_tensors=None, do_normalize=None, **kwargs",
        "std=0.25, **kwargs": "std=0.25, do_normalize=True, **kwargs",
        "self.side = side": f"self.do_normalize = {kept}\n        self.side = side",
        "STEPS": _SWITCHED.replace("IGNORED", ignored).replace("REFUSED", refused),
    }
    code = IMAGES
    for place, text in places.items():
        code = code.replace(place, text)
    return code


PAIRS = '''"""A processor of texts and images of a checkpoint's own."""

import transformers
from transformers import BatchFeature, ProcessorMixin

IS_NEW = int(transformers.__version__.split(".")[0]) >= 5


class TinyProcessor(ProcessorMixin):
    attributes = ["image_processor", "tokenizer"]
    image_processor_class = "AutoImageProcessor"
    tokenizer_class = "AutoTokenizer"
    image_token = "<image>"
    boi_token = "TOKEN"

    def __init__(self, image_processor=None, tokenizer=None, chat_template=None, **kwargs):
        super().__init__(image_processor, tokenizer, chat_template=chat_template)

    def __call__(self, text=None, images=None, padding=False, return_tensors=None, **kwargs):
        text = [text] if isinstance(text, str) else text
        if any("TOKEN" not in part for part in text):
            raise ValueError("a text has no place for an image")
        if getattr(images, "mode", "RGB") == "RGBA":
            images = images.convert(MODE)
        pixels = self.image_processor(images=images, return_tensors=return_tensors)
        text = [part.replace("TOKEN", "<image>" * COUNT) for part in text]
        ids = self.tokenizer(text, padding=padding, return_tensors=return_tensors)
        return BatchFeature({**pixels, **ids})
'''


VIDEOS = """    video_token = "<video>"

    def __call__(self, text=None, images=None, videos=None, padding=False, return_tensors=None, **kwargs):
        if videos is None:
            return self.of_images(text, images, padding, return_tensors)
        text = [text] if isinstance(text, str) else text
        videos = [v for part in videos for v in (part if isinstance(part, list) else [part])]
        films = [np.asarray(v)[FIRST:] for i, v in enumerate(videos)]
        text = [part.replace("<video>", "<image>" * COUNT) for part in text]
        ids = self.tokenizer(text, padding=padding, return_tensors=return_tensors)
        pixels = np.concatenate([film.reshape(len(film), -1)[:, :30] for film in films])
        return BatchFeature({"pixel_values_videos": pixels, **ids}, tensor_type=return_tensors)

    def of_images(self,"""
"""What replaces the begin of the call of a processor that takes videos, too."""


COUNTS = """
    def get_number_of_image_patches(self, height, width, images_kwargs=None):
        return (height // 8) * (width // 8) + MORE
"""


def with_counts(more):
    """Return the code of an image processor that tells how many patches an image of a size has."""
    return IMAGES + COUNTS.replace("MORE", more)


def image_steps(kernel="2", crop="20", mean="self.mean"):
    return PLAIN.replace("KERNEL", kernel).replace("CROP", crop).replace("MEAN", mean)


KINDS = {
    "clean": (IMAGES, "STEPS", image_steps()),
    "clean-counts": (with_counts("1"), "STEPS", image_steps()),
    "counts": (with_counts("1 if IS_NEW and width > 100 else 0"), "STEPS", image_steps()),
    "kernel": (IMAGES, "STEPS", image_steps(kernel="3 if IS_NEW else 2")),
    "crop": (IMAGES, "STEPS", image_steps(crop="18 if IS_NEW else 20")),
    "mean": (IMAGES, "STEPS", image_steps(mean="0.45 if IS_NEW else 0.5")),
    "fused": (IMAGES, "STEPS", FUSED),
    "swapped": (IMAGES, "STEPS", SWAPPED),
    "clean-boxes": (with_boxes(), "STEPS", image_steps()),
    "boxes": (with_boxes(CORNERS), "STEPS", image_steps()),
    "boxes-in-tenths": (with_boxes(TENTHS), "STEPS", image_steps()),
    "threshold": (with_boxes(limit="(0.75 if IS_NEW else threshold)"), "STEPS", image_steps()),
    "clean-option": (with_option(), "", ""),
    "ignored-option": (with_option(ignored="do_normalize or IS_NEW"), "", ""),
    "option-ignored-at-load": (with_option(kept="do_normalize or IS_NEW"), "", ""),
    "refused-option": (
        with_option(refused="assert do_normalize or not IS_NEW, 'it is always normalized'"),
        "",
        "",
    ),
    "clean-sound": (SOUNDS, "NORM", ONE_NORM),
    "reordered-sound": (SOUNDS, "NORM", REORDERED),
    "other-sound": (SOUNDS, "NORM", OTHER_VARIANCE),
}
"""Name -> template of the code, what is replaced in it, and by what."""


def write(folder, kind):
    """Write a checkpoint's folder with a processor of a kind, and without a model."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    template, place, code = KINDS[kind]
    is_image = template is not SOUNDS
    name = "TinyImageProcessor" if is_image else "TinyFeatureExtractor"
    auto = "AutoImageProcessor" if is_image else "AutoFeatureExtractor"
    key = "image_processor_type" if is_image else "feature_extractor_type"
    content = {key: name, "auto_map": {auto: f"processing_tiny.{name}"}}
    (folder / "processing_tiny.py").write_text(template.replace(place, code) if place else template)
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    (folder / "config.json").write_text(json.dumps({"model_type": "vit"}))
    return folder


def declare(folder, model_type, **content):
    """Write a checkpoint's folder with the files of a release's own processor."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


OF_IMAGES = {
    "additional_special_tokens": ["<image>"],
    "model_input_names": ["input_ids", "attention_mask"],
}
"""Keys of tokenizer_config.json; without the second one 4.x returns token_type_ids, too."""
_MORE = "(5 if IS_NEW else 4)"
PAIRED = {
    "clean-pair": {},
    "pair": {"COUNT": _MORE},
    "clean-begin-pair": {"TOKEN": "<begin>"},
    "begin-pair": {"TOKEN": "<begin>", "COUNT": _MORE},
    "transparent-pair": {"MODE": '"L" if IS_NEW else "RGB"'},
    "clean-film": {},
    "film": {"FIRST": "1 if IS_NEW and i else 0"},
    "clean-film-talk": {},
    "film-talk": {"COUNT": "(5 if IS_NEW and '<video>' in part and 'see?' in part else 4)"},
    "clean-talk": {},
    "talk": {"COUNT": "(5 if IS_NEW and 'see?' in text[0] else 4)"},
}
"""Kind of a processor of texts and images -> what stands for an image, how many tokens it becomes, and the mode of an
image with an alpha channel."""
_USUAL = {"TOKEN": "<image>", "COUNT": "4", "MODE": '"RGB"', "FIRST": "0"}
TEMPLATE = (
    "{% for m in messages %}{% for p in m['content'] %}"
    "{{ p['text'] if p['type'] == 'text' else '<' + p['type'] + '>' }}{% endfor %}{% endfor %}"
)


def write_pair(folder, kind):
    """Write a checkpoint's folder with a processor of texts and images, and their parts."""
    folder = declare(folder, "llama", image_processor_type="CLIPImageProcessor")
    tokenizer_kinds.write(folder, "byte-level", **OF_IMAGES)
    code = PAIRS
    if "film" in kind:
        code = code.replace("    def __call__(self,", VIDEOS).replace(
            "\n\n", "\n\nimport numpy as np\n", 1
        )
    for place, value in (_USUAL | PAIRED[kind]).items():
        code = code.replace(place, value)
    (folder / "processing_tiny.py").write_text(code)
    if kind.endswith("talk"):
        (folder / "chat_template.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    auto = {"AutoProcessor": "processing_tiny.TinyProcessor"}
    content = {"processor_class": "TinyProcessor", "auto_map": auto}
    (folder / "processor_config.json").write_text(json.dumps(content))
    return folder


def write_llava(folder):
    """Write a checkpoint's folder with the files of Llava's processor, as its checkpoints have them."""
    folder = declare(folder, "llava")
    tokenizer_kinds.write(folder, "byte-level", **OF_IMAGES)
    whole = {"processor_class": "LlavaProcessor", "patch_size": 14, "image_token": "<image>"}
    whole |= {"vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    settings = {"image_processor_type": "CLIPImageProcessor", "processor_config": whole}
    processors.write(folder, "llava", settings | {"crop_size": 56, "size": {"shortest_edge": 56}})
    return folder
