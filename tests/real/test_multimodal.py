"""Images, videos and sounds among token ids, one class for every stack, and modules that no prompt runs, over real releases."""

import json
from pathlib import Path

import pytest

from tests.real.conftest import NEW, OLD, write_planted

PLANTED = Path(__file__).parent / "planted"

SEEING = {
    "clean": {},
    "tower": {"defect": "tower"},
    "second": {"defect": "second"},
    "frames": {"defect": "frames"},
    "by-hand": {"defect": "by hand"},
    "blind": {"image_token_id": 99, "video_token_id": 98},
}
HEARING = {"hears": {}, "turned": {"defect": "turned"}}
MAKE_LLAVA = """
import sys, torch, transformers
torch.manual_seed(0)
text = dict(vocab_size=99, hidden_size=48, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
image = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             image_size=32, patch_size=8, projection_dim=32)
config = transformers.LlavaConfig(
    transformers.CLIPVisionConfig(**image), transformers.LlamaConfig(**text),
    image_token_index=90, image_seq_length=16)
transformers.LlavaForConditionalGeneration(config).save_pretrained(sys.argv[1])
"""
MAKE_QWEN = """
import sys, torch, transformers
torch.manual_seed(0)
text = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, rope_scaling={"type": "mrope", "mrope_section": [1, 1, 2]})
image = dict(depth=1, embed_dim=32, hidden_size=32, num_heads=4, patch_size=4)
config = transformers.Qwen2VLConfig(vision_config=image, **text)
transformers.Qwen2VLModel(config).save_pretrained(sys.argv[1])
"""


def seeing(folder, fields):
    """Make a checkpoint of the custom model of text and image."""
    linears = {"tower": (16, 48), "head": (32, 16)} | {f"experts.{i}": (16, 16) for i in range(3)}
    shapes = {"embed.weight": (32, 16)}
    for name, shape in linears.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    classes = {"AutoConfig": "SeeingConfig", "AutoModel": "SeeingModel"}
    write_planted(folder, "modeling_seeing", shapes, classes, model_type="seeing", **fields)


def hearing(folder, fields):
    """Make a checkpoint of the custom model of text and sound."""
    shapes = {"embed.weight": (32, 16), "ear.weight": (16, 8), "ear.bias": (16,)}
    shapes |= {"head.weight": (32, 16), "head.bias": (32,)}
    classes = {"AutoConfig": "HearingConfig", "AutoModel": "HearingModel"}
    write_planted(folder, "modeling_seeing", shapes, classes, model_type="hearing", **fields)


@pytest.fixture(scope="module")
def rows(tmp_path_factory, run_in, run_script):
    folder = tmp_path_factory.mktemp("multimodal")
    for name, fields in SEEING.items():
        seeing(folder / name, fields)
    for name, fields in HEARING.items():
        hearing(folder / name, fields)
    run_script(OLD, "-c", MAKE_LLAVA, folder / "llava")
    path = folder / "llava" / "config.json"
    config = json.loads(path.read_text())
    # as 4.57 saves a Qwen2-VL that was made from a config
    config["text_config"]["architectures"] = config.pop("architectures")
    path.write_text(json.dumps(config))
    run_script(OLD, "-c", MAKE_QWEN, folder / "qwen")
    path = folder / "qwen" / "config.json"
    config = json.loads(path.read_text())
    del config["architectures"]
    path.write_text(json.dumps(config))
    lines = [
        f'environments: ["{OLD}", "{NEW}"]',
        "defaults:",
        "  greedy: 2",
        "  questions: []",
        "  prompts: {short: {length: 9}}",
        "models:",
        *(f"  {name}: {{path: {name}, trust_remote_code: true}}" for name in (*SEEING, *HEARING)),
        "  llava: {path: llava}",
        "  qwen: {path: qwen}",
    ]
    (folder / "matrix.yaml").write_text("\n".join(lines))
    return {row.model: row for row in run_in(folder).rows}


def test_another_class_of_the_same_name_is_not_compared(rows):
    old, new = rows["qwen"].cells
    assert old.verdict == "reference", old.headline
    assert new.verdict == "absent", new.headline
    assert "another class Qwen2VLModel: its forward takes images" in new.absent
    assert "--class" in new.absent


def differing(cell):
    return {
        item.subject.prompt
        for signal in cell.signals
        for item in signal.items
        if item.outcome == "differs"
    }


def unrun(row):
    return {stack: {entry.name for entry in entries} for stack, entries in row.unrun.items()}


@pytest.mark.parametrize("name", ["clean", "by-hand"])
def test_a_tower_that_is_the_same_is_not_accused(rows, name):
    cell = rows[name].cells[-1]
    assert cell.verdict == "identical", cell.headline
    logits = next(signal for signal in cell.signals if signal.signal == "logits")
    assert logits.n_items == 6  # short, image, image-padded, two-images, video, video-padded


def test_a_tower_that_differs_is_found_by_its_image(rows):
    cell = rows["tower"].cells[-1]
    assert cell.verdict == "diverged", cell.headline
    assert differing(cell) == {"image", "image-padded", "two-images", "video", "video-padded"}


def test_a_second_image_that_is_not_seen_is_found_by_two_images(rows):
    cell = rows["second"].cells[-1]
    assert cell.verdict == "diverged", cell.headline
    assert differing(cell) == {"two-images"}


def test_frames_in_another_order_are_found_by_a_video(rows):
    cell = rows["frames"].cells[-1]
    assert cell.verdict == "diverged", cell.headline
    assert differing(cell) == {"video", "video-padded"}


def test_a_sound_that_is_turned_is_found_by_a_sound_and_one_that_is_not_is_not_accused(rows):
    clean, turned = (rows[name].cells[-1] for name in HEARING)
    assert clean.verdict == "identical", clean.headline
    logits = next(signal for signal in clean.signals if signal.signal == "logits")
    assert logits.n_items == 3  # short, audio, audio-padded
    assert turned.verdict == "diverged", turned.headline
    assert differing(turned) == {"audio", "audio-padded"}


@pytest.mark.parametrize("name", ["clean", "by-hand", "tower", "second", "frames"])
def test_only_what_no_prompt_ran_is_named(rows, name):
    assert unrun(rows[name]) == {OLD: {"experts.1"}, NEW: {"experts.1"}}
    assert all(entry.one_of_several for entry in rows[name].unrun[NEW])


def test_a_tower_that_no_prompt_ran_is_named_and_why_there_is_no_image(rows):
    assert unrun(rows["blind"]) == {s: {"tower", "experts.1"} for s in (OLD, NEW)}
    cell = rows["blind"].cells[-1]
    assert cell.verdict == "identical", cell.headline
    reasons = {skip.what: skip.reason for skip in cell.skips if skip.why == "inputs"}
    assert reasons["forward image"] == "image_token_id 99 is outside of the vocabulary of 32"
    assert reasons["forward video"] == "video_token_id 98 is outside of the vocabulary of 32"


def test_every_stack_gets_the_class_that_was_chosen(rows):
    cell = rows["llava"].cells[-1]
    outputs = next(signal for signal in cell.signals if signal.signal == "outputs")
    moved = {
        (item.subject.tensor, item.outcome, item.note.partition(", ")[0])
        for item in outputs.items
        if item.subject.prompt == "image" and item.subject.tensor.startswith("image_hidden_states")
    }
    # one tensor of two images through 5.23, and from 5.24 on a list, by a property of the old name
    form = "returned as a list or tuple of 1 tensor instead of one tensor"
    assert moved == {("image_hidden_states", "only in reference", form)}
    weights = next(signal for signal in cell.signals if signal.signal == "weights")
    assert weights.outcome == "identical"
    assert not rows["llava"].unrun


@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [
        ("tower", "operation", "features * 1.5"),
        # what only moves elements is shown by the first operation that computes with them
        ("second", "layout", "hidden.masked_scatter"),
        ("frames", "layout", "hidden.masked_scatter"),
        ("turned", "layout", ".mean(-1)"),
    ],
)
def test_the_first_line_that_computes_something_else_is_named(rows, name, kind, line):
    cause = rows[name].cells[-1].cause
    assert cause is not None
    file, _, number = cause.candidate.source.rpartition(":")
    lines = (PLANTED / file.rpartition("/")[2]).read_text().splitlines()
    assert cause.kind == kind, cause.headline
    assert line in lines[int(number) - 1], cause.headline


@pytest.mark.parametrize("name", ["clean", "by-hand", "hears"])
def test_what_is_the_same_has_no_cause(rows, name):
    assert rows[name].cells[-1].cause is None
