"""cell.processors: sounds in both precisions, kernels against torch's, and code put back."""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from samebits_probe.cell import arrays, processors, resampling, samples, steps, widened
from samebits_probe.model.load import Source

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
    image = samples.picture(37, 53).astype(np.float64) / 4 + 90  # nothing is clipped
    tensor = torch.from_numpy(image).permute(2, 0, 1)[None]
    for size in ((20, 31), (80, 71), (37, 20)):
        for number, mode in ((2, "bilinear"), (3, "bicubic")):
            expected = torch.nn.functional.interpolate(
                tensor, size=size, mode=mode, antialias=True, align_corners=False
            )[0].permute(1, 2, 0)
            result = resampling.resampled(image, size, number)
            assert np.abs(result - expected.numpy()).max() < 1e-11, (size, mode)


def test_arrays_of_several_lengths_are_hashed_by_their_values():
    pieces = [np.ones(3, np.float32), np.ones(2, np.float32)]
    ragged = np.empty(2, object)
    ragged[:] = pieces
    assert arrays.facts(ragged) == arrays.facts(pieces)
    assert arrays.facts(ragged)["shapes"] == [[3], [2]]
