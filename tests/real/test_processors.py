"""Processors over real releases: planted differences are named, clean twins are not accused."""

import json
from pathlib import Path

import pytest

from samebits.findings.case import Case
from samebits.questions.processors.records import ProcessorsSignal
from samebits.questions.registry import findings
from tests.real.conftest import NEW, OLD
from tests.support.builders import Memory, sound
from tests.support.processor_kinds import KINDS, PAIRED, declare, write, write_llava, write_pair

pytestmark = pytest.mark.long  # for changes of questions/processors

ROOT = Path(__file__).parents[2]
ASK = """
import json, logging, sys, warnings
sys.path[1:1] = [sys.argv[1]]
sys.path.append(sys.argv[3])
from samebits_probe.questions.processors import processors
from samebits_probe.model.load import Source
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
for name, folder in json.loads(sys.argv[2]).items():
    facts = processors.facts(Source(folder, None, True, "float32", "default", "cpu"), 600.0)
    print(json.dumps([name, facts]))
"""
"""Asks for what the phase ``processors`` observes of some folders, without their models."""

PLANTED = {
    "kernel": ("SB833", "resize", "arguments [24, 2] → [24, 3]"),
    "crop": ("SB835", "center_crop", "arguments [20] → [18]"),
    "mean": ("SB833", "normalize", "arguments [0.5, 0.25] → [0.45, 0.25]"),
    "swapped": ("SB833", "the order of the steps", "resize, center_crop"),
    "fused": ("SB834", "", ""),
    "reordered-sound": ("SB834", "zero_mean_unit_var_norm", ""),
    "other-sound": ("SB833", "zero_mean_unit_var_norm", ""),
    "boxes": ("SB838", "post_process_object_detection", ""),
    "threshold": ("SB838", "post_process_object_detection", ""),
    "counts": ("SB830", "image processor, counts: get_number_of_image_patches", "224 x 224"),
    "boxes-in-tenths": ("SB834", "post_process_object_detection", ""),
    "ignored-option": (
        "SB850",
        "image processor, with options: RGB 97 x 64, do_normalize=false",
        "",
    ),
    "option-ignored-at-load": ("SB859", "RGB 97 x 64, do_normalize=false in from_pretrained", ""),
    "refused-option": (
        "SB836",
        "image processor, with options: RGB 97 x 64, do_normalize=false",
        "",
    ),
}
"""Kind -> its finding, the step that is named, and more of what is said of it."""
CLEAN = ("clean", "clean-boxes", "clean-counts", "clean-option", "clean-sound", "wav2vec2")
OWN = {
    "wav2vec2": {
        "feature_extractor_type": "Wav2Vec2FeatureExtractor",
        "return_attention_mask": False,
    },
    "whisper": {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "return_attention_mask": False,
    },
    "wav2vec2-without-keys": {"feature_extractor_type": "Wav2Vec2FeatureExtractor"},
    "vit": {"image_processor_type": "ViTImageProcessor"},
    "clip": {"image_processor_type": "CLIPImageProcessor"},
}
"""Classes of the releases, with their defaults."""


@pytest.fixture(scope="module")
def signals(run_script, beside, tmp_path_factory):
    """Return stack -> name -> what that release makes of seeded inputs."""
    root = tmp_path_factory.mktemp("processors")
    for kind in KINDS:
        write(root / kind, kind)
    for name, content in OWN.items():
        declare(root / name, name.partition("-")[0], **content)
    for kind in PAIRED:
        write_pair(root / kind, kind)
    write_llava(root / "llava")
    folders = json.dumps({path.name: str(path) for path in sorted(root.iterdir())})
    observed = {}
    for stack in (OLD, NEW):
        pillow = beside(stack, ["pillow"])
        text = run_script(stack, "-c", ASK, ROOT / "probes", folders, pillow, shared=False)
        lines = (json.loads(line) for line in text.splitlines() if line.startswith("["))
        observed[stack] = {name: ProcessorsSignal.model_validate(facts) for name, facts in lines}
    return observed


def found(signals, name, reference="4.48", candidate="5.x"):
    case = Case(
        capture=sound(Memory(), candidate, processors=signals[candidate][name]),
        reference=sound(Memory(), reference, processors=signals[reference][name]),
    )
    return findings(case)


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_difference_is_found_and_its_step_is_named(signals, kind):
    code, step, more = PLANTED[kind]
    (finding,) = found(signals, kind)
    assert finding.code == code, finding
    assert step in finding.where
    assert more in finding.where


@pytest.mark.parametrize("name", CLEAN)
def test_a_processor_that_computes_the_same_is_not_accused(signals, name):
    assert found(signals, name) == ()
    assert found(signals, name, "5.x", "4.48") == ()


def test_a_mask_that_is_one_frame_longer_than_the_sound_is_named(signals):
    """Issue 39214 (PROC-03): 4.48 rounds the frames of a mask up and those of the sound down."""
    for reference, candidate in (("4.48", "5.x"), ("5.x", "4.48")):
        finding, of_option, at_load = found(signals, "whisper", reference, candidate)
        assert finding.code == of_option.code == "SB835"
        assert finding.where.startswith("feature extractor: two, padded, attention mask")
        assert finding.evidence[0].startswith("1 of ")
        assert of_option.where.endswith("return_attention_mask=true")
        # in every release a mask that the file asks for has samples, and one of a call has frames
        assert at_load.code == "SB859"


@pytest.mark.parametrize("name", [*KINDS, *OWN])
def test_every_processor_runs_in_both_precisions(signals, name):
    for of_stack in signals.values():
        part = next(iter(of_stack[name].parts.values()))
        assert part.class_name
        ran = [case for case in part.cases.values() if case.outputs is not None]
        assert len(ran) >= 8
        assert sum(bool(case.promoted) and not case.not_promoted for case in ran) >= len(ran) - 1


def test_images_of_the_releases_differ_only_in_what_their_sources_show(signals):
    """5.x names its classes otherwise, puts an image with an alpha channel on white, and drops data_format (PROC-04).

    It refuses means and deviations as arrays.
    """
    vit = {f.code: f for f in found(signals, "vit")}
    assert vit.keys() == {"SB832", "SB836", "SB850"}
    assert "image_mean=array(" in vit["SB836"].where
    assert vit["SB850"].where.endswith('RGB 97 x 64, data_format="channels_last"')
    assert vit["SB850"].evidence[0].startswith("1 of ")
    clip = {f.code: f for f in found(signals, "clip")}
    assert clip.keys() == {"SB832", "SB833", "SB836", "SB850"}
    assert "RGBA, before resize, in how the image or sound is converted" in clip["SB833"].where


@pytest.mark.parametrize("name", ["clean-boxes", "boxes"])
def test_what_is_made_of_outputs_runs_in_both_precisions(signals, name):
    for of_stack in signals.values():
        case = (
            of_stack[name]
            .parts["image processor, after the model"]
            .cases["post_process_object_detection"]
        )
        assert {"0.scores", "0.labels", "0.boxes", "1.boxes"} <= set(case.outputs)
        assert case.promoted["0.boxes"].dtype == "float64"
        assert not case.not_promoted


def of_texts_and_images(signals, name):
    """Return what is accused; the reference, 4.48, refuses a list of images for each text."""
    of_whole = [f for f in found(signals, name) if f.where.startswith("processor")]
    assert {f.code for f in of_whole if f.of_reference} <= {"SB836"}
    return [f for f in of_whole if not f.of_reference]


def test_placeholders_that_become_another_number_of_tokens_are_named(signals):
    (finding,) = of_texts_and_images(signals, "pair")
    assert finding.code == "SB835"
    assert "a text and an image" in finding.where


def only_case(signals, name):
    """Return the code of the only finding, and the names of all cases in which the two releases differ."""
    (finding,) = of_texts_and_images(signals, name)
    return finding.code, differing_cases(signals, name)


def differing_cases(signals, name):
    """Return the cases for which both releases have outputs, and other ones."""
    old, new = (signals[stack][name].parts["processor"].cases for stack in (OLD, NEW))
    both = {c for c in old if c in new and old[c].outputs and new[c].outputs}
    return {c for c in both if old[c].outputs != new[c].outputs}


def test_an_alpha_channel_reaches_the_whole_processor(signals):
    """5.x puts it on white, as the image processor alone shows; it refuses a text without its image."""
    assert differing_cases(signals, "llava") == {"a text and an image, RGBA"}
    assert {f.code: f.where for f in of_texts_and_images(signals, "llava")} == {
        "SB833": "processor: a text and an image, RGBA",
        "SB836": "processor: a text that names an image, alone",
    }


def test_a_processor_is_asked_at_the_placeholder_that_it_takes(signals):
    code, differing = only_case(signals, "begin-pair")
    assert code == "SB835"
    assert differing
    assert all(case.endswith(", at <begin>") for case in differing)
    cases = signals[NEW]["begin-pair"].parts["processor"].cases
    assert cases["a text and an image"].raised == "ValueError"
    assert not any(
        case.endswith("<begin>") for case in signals[NEW]["pair"].parts["processor"].cases
    )


def test_an_image_that_is_converted_otherwise_by_the_whole_processor_is_named(signals):
    assert only_case(signals, "transparent-pair") == ("SB833", {"a text and an image, RGBA"})


def test_a_conversation_goes_through_the_template_and_the_processor(signals):
    code, differing = only_case(signals, "talk")
    assert code == "SB835"
    assert {"a conversation with an image", "a conversation with two images"} <= differing
    one, two = (
        signals[NEW]["clean-talk"].parts["processor"].cases[f"a conversation with {images}"].outputs
        for images in ("an image", "two images")
    )
    assert one["prompt"].text == '["<image>what do you see?"]'
    assert two["input_ids"].shapes[0][1] == one["input_ids"].shapes[0][1] + 4
    assert two["pixel_values"].shapes[0][0] == 2


def test_several_videos_of_one_call_are_asked(signals):
    """A release that drops the first frame of each further video gives the same for one video."""
    code, differing = only_case(signals, "film")
    assert code == "SB835"
    assert differing == {
        "a text and two videos",
        "a text and two videos of different shapes",
        "two texts of different lengths, a video each",
    }


def test_a_conversation_with_videos_goes_through_the_template(signals):
    code, differing = only_case(signals, "film-talk")
    assert code == "SB835"
    assert differing == {"a conversation with a video", "a conversation with two videos"}
    for stack, nothing in ((OLD, "apply_chat_template returns nothing of"), (NEW, "")):
        cases = signals[stack]["clean-film-talk"].parts["processor"].cases
        left_out = cases["a conversation with two videos, in one call"].left_out
        assert bool(left_out) is bool(nothing)
        assert left_out.startswith(nothing)
    pixels = cases["a conversation with two videos, in one call"].outputs["pixel_values_videos"]
    assert pixels.shapes == ((6, 30),)


@pytest.mark.parametrize(
    "name", ["clean-pair", "clean-begin-pair", "clean-talk", "clean-film", "clean-film-talk"]
)
def test_a_processor_of_texts_and_images_that_gives_the_same_is_not_accused(signals, name):
    assert of_texts_and_images(signals, name) == []


def test_the_placeholder_of_an_image_becomes_as_many_tokens_as_the_image_has_patches(signals):
    for of_stack in signals.values():
        cases = of_stack["llava"].parts["processor"].cases
        one, two = (
            cases[name].outputs for name in ("a text and an image", "a text and two images")
        )
        (n_one,), (n_two,) = ((o["input_ids"].shapes[0][1],) for o in (one, two))
        assert n_one > (56 // 14) ** 2
        assert n_two > 2 * (56 // 14) ** 2
        assert two["pixel_values"].shapes == ((2, 3, 56, 56),)


def test_the_texts_of_ids_are_compared(signals):
    for of_stack in signals.values():
        case = of_stack["llava"].parts["processor, after the model"].cases["batch_decode"]
        assert case.outputs["result"].text.startswith("[")


def test_torchvision_is_absent_and_the_reason_says_so(signals):
    for of_stack in signals.values():
        part = of_stack["vit"].parts["image processor, torchvision on demand"]
        assert part.absent == "torchvision is not installed in this environment"


def test_an_option_without_a_key_in_the_file_is_dropped_by_every_release(signals):
    """PROC-05: from_pretrained of a feature extractor reads only options that its file names."""
    for reference, candidate in (("4.48", "5.x"), ("5.x", "4.48")):
        (finding,) = found(signals, "wav2vec2-without-keys", reference, candidate)
        assert finding.code == "SB859"
        assert finding.where.endswith("return_attention_mask=true in from_pretrained")


def test_a_capture_stays_small(signals):
    for signal in signals["5.x"].values():
        assert len(signal.model_dump_json()) < 400_000
