"""Processors in a checkpoint's own code, whose behaviour can depend on the release."""

import json
from pathlib import Path

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


def image_steps(kernel="2", crop="20", mean="self.mean"):
    return PLAIN.replace("KERNEL", kernel).replace("CROP", crop).replace("MEAN", mean)


KINDS = {
    "clean": (IMAGES, "STEPS", image_steps()),
    "kernel": (IMAGES, "STEPS", image_steps(kernel="3 if IS_NEW else 2")),
    "crop": (IMAGES, "STEPS", image_steps(crop="18 if IS_NEW else 20")),
    "mean": (IMAGES, "STEPS", image_steps(mean="0.45 if IS_NEW else 0.5")),
    "fused": (IMAGES, "STEPS", FUSED),
    "swapped": (IMAGES, "STEPS", SWAPPED),
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
    is_image = template is IMAGES
    name = "TinyImageProcessor" if is_image else "TinyFeatureExtractor"
    auto = "AutoImageProcessor" if is_image else "AutoFeatureExtractor"
    key = "image_processor_type" if is_image else "feature_extractor_type"
    content = {key: name, "auto_map": {auto: f"processing_tiny.{name}"}}
    (folder / "processing_tiny.py").write_text(template.replace(place, code))
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
