"""What a model is fed, over two real stacks: chosen once, and what a forward refuses fails nothing."""

import json

import pytest

from tests.real.conftest import NEW, OLD, write_planted

TEXT = (
    "vocab_size: 99, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, "
    "num_attention_heads: 4, bos_token_id: 1, eos_token_id: 2, pad_token_id: 0"
)
IMAGE = (
    "hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, "
    "image_size: 24, patch_size: 8"
)
BUILT = {
    "clip": "{architecture: clip, head: base, seed: 1, config: {projection_dim: 16, "
    f"text_config: {{{TEXT}, max_position_embeddings: 40}}, vision_config: {{{IMAGE}}}}}}}",
    "bert": "{architecture: bert, head: masked-lm, seed: 2, config: {"
    f"{TEXT}, max_position_embeddings: 64}}}}",
}
LLAVA = """
import sys, torch, transformers
text = transformers.LlamaConfig(vocab_size=99, hidden_size=32, intermediate_size=48,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
vision = transformers.CLIPVisionConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, image_size=24, patch_size=8)
torch.manual_seed(0)
config = transformers.LlavaConfig(text_config=text, vision_config=vision, image_token_index=12)
transformers.LlavaForConditionalGeneration(config).save_pretrained(sys.argv[1])
"""
T5 = """
import sys, torch, transformers
torch.manual_seed(0)
config = transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2,
    num_heads=4, decoder_start_token_id=START)
transformers.T5ForConditionalGeneration(config).save_pretrained(sys.argv[1])
"""
BERT_CLASSES = """
import sys, torch, transformers
torch.manual_seed(0)
config = transformers.BertConfig(vocab_size=99, hidden_size=32, intermediate_size=48,
    num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
transformers.BertForSequenceClassification(config).save_pretrained(sys.argv[1])
"""
WHISPER = """
import sys, torch, transformers
torch.manual_seed(0)
config = transformers.WhisperConfig(vocab_size=99, num_mel_bins=16, d_model=32, encoder_layers=2,
    decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    max_source_positions=30, max_target_positions=40, pad_token_id=0, bos_token_id=1,
    eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None)
transformers.WhisperForConditionalGeneration(config).save_pretrained(sys.argv[1])
"""
SAVED = {
    "llava": LLAVA,
    "t5": T5.replace("START", "0"),
    "t5-without-start": T5.replace("START", "None"),
    "bert-classes": BERT_CLASSES,
    "whisper": WHISPER,
}
PLANTED = {
    "healthy": ("FedForCausalLM", "none"),
    "proteins": ("FedForProteins", "none"),
    "asks": ("FedForCausalLM", "asks for a structure"),
    "unbound": ("FedNew", "none"),
    "loses": ("FedForCausalLM", "loses its ids"),
    "unknown-keyword": ("FedForCausalLM", "an unknown keyword"),
    "masks": ("FedForCausalLM", "leaves masks out"),
    "masks-clean": ("FedForCausalLM", "none"),
}
WITH_MASKS = {"vocab_size": 32, "mask_token_id": 3}
VOCABULARY = {"proteins": {}, "masks": WITH_MASKS, "masks-clean": WITH_MASKS}
"""Fields of the config beside the plain ones: one model has no vocabulary, two have mask tokens."""


def plant(folder, architecture, defect, more):
    classes = {"AutoConfig": "FedConfig", "AutoModel": architecture}
    shapes = {"trunk.embed.weight": (32, 16), "head.weight": (32, 16)}
    for i in range(2):
        shapes |= {f"trunk.layers.{i}.weight": (16, 16), f"trunk.layers.{i}.bias": (16,)}
    config = {"model_type": "fed", "plant": defect} | more
    write_planted(folder, "modeling_fed", shapes, classes, **config)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run_script):
    made = tmp_path_factory.mktemp("inputs")
    lines = [
        f'environments: ["{OLD}", "{NEW}"]',
        "defaults:",
        "  dtypes: [float32]",
        "  greedy: 4",
        "  questions: []",
        "  prompts:",
        "    short: {length: 9}",
        "    padded: {batch: [{length: 5}, {length: 13}]}",
        "models:",
    ]
    lines += [f"  {name}: {{build: {recipe}}}" for name, recipe in BUILT.items()]
    for name, script in SAVED.items():
        run_script(OLD, "-c", script, made / name)
        lines.append(f"  {name}: {{path: {name}}}")
    for name, (architecture, defect) in PLANTED.items():
        plant(made / name, architecture, defect, VOCABULARY.get(name, {"vocab_size": 32}))
        lines.append(f"  {name}: {{path: {name}, trust_remote_code: true}}")
    (made / "matrix.yaml").write_text("\n".join(lines))
    return made


@pytest.fixture(scope="module")
def captures(report, folder):
    found = {}
    for path in (folder / ".samebits" / "captures").rglob("a.json"):
        capture = json.loads(path.read_text())
        found[capture["cell"]["model"], capture["cell"]["stack"]] = capture
    return found


def outcomes(cell):
    return {signal.signal: signal.outcome for signal in cell.signals}


def fed(captures, model):
    """Return the arguments of every prompt, which are the same bytes in both stacks."""
    old, new = (captures[model, stack]["signals"]["forward"] for stack in (OLD, NEW))
    hashes = [{p: f["inputs"] for p, f in forwards.items()} for forwards in (old, new)]
    assert hashes[0] == hashes[1]
    return {prompt: list(inputs) for prompt, inputs in hashes[0].items()}


def refusals(capture):
    return {s["what"]: s["reason"] for s in capture["skips"] if s.get("why") == "inputs"}


IDS, MASKED = ["input_ids"], ["input_ids", "attention_mask"]
FED = {
    "clip": {"short": [*IDS, "pixel_values"], "padded": [*MASKED, "pixel_values"]},
    "llava": {
        "short": IDS,
        "padded": MASKED,
        "image": [*MASKED, "pixel_values"],
        "image-padded": [*MASKED, "pixel_values"],
        "two-images": [*MASKED, "pixel_values"],
    },
    "bert": {"short": IDS, "padded": MASKED, "special": MASKED},
    "masks-clean": {"short": IDS, "padded": MASKED, "special": MASKED},
    "bert-classes": {"short": IDS, "padded": MASKED},
    "t5": {"short": [*IDS, "decoder_input_ids"], "padded": [*MASKED, "decoder_input_ids"]},
    "whisper": {"short": ["input_features", "decoder_input_ids"]},
    "healthy": {"short": IDS, "padded": MASKED},
}
CPU = {"identical", "rounding"}
"""What a cell is whose release computes the same function: which of the two is the machine's."""
VERDICTS = dict.fromkeys(FED, CPU) | {"clip": {"diverged"}, "llava": {"diverged"}}
"""From 5.0 on CLIP returns its projections as ``pooler_output``, and the image_hidden_states of LLaVA have
lost a dimension: same logits, another output."""


@pytest.mark.parametrize("model", FED)
def test_what_a_model_takes_is_fed_to_both_stacks_by_the_same_bytes(model, cells, captures):
    assert fed(captures, model) == FED[model]
    cell = cells[model, NEW]
    assert cell.verdict in VERDICTS[model], cell
    assert outcomes(cell)["inputs"] == "identical"
    assert outcomes(cell)["logits"] in {"identical", "differs"}
    assert refusals(captures[model, OLD]) == refusals(captures[model, NEW]) == {}


def test_llava_generates_text_in_both_stacks(cells, captures):
    for stack in (OLD, NEW):
        greedy = captures["llava", stack]["signals"]["greedy"]
        assert list(greedy)[:3] == ["short", "padded[0]", "padded[1]"]
        assert {"image", "image-padded[0]", "two-images[0]", "two-images[1]"} <= greedy.keys()
    assert outcomes(cells["llava", NEW])["greedy"] == "identical"


def test_the_output_in_which_clip_holds_something_else_is_named(cells):
    cell = cells["clip", NEW]
    assert "SB912" in [finding.code for finding in cell.findings]
    assert cell.first.signal in {"outputs", "hidden_states", "logits"}  # rounding may come first
    signal = next(signal for signal in cell.signals if signal.signal == "outputs")
    differing = {item.subject.tensor for item in signal.items if item.outcome == "differs"}
    pooled = {f"{kind}_model_output.pooler_output" for kind in ("text", "vision")}
    assert pooled <= differing


def test_what_a_clip_compares_are_the_logits_of_texts_and_images(captures):
    forwards = captures["clip", NEW]["signals"]["forward"]
    assert forwards["short"]["logits"]["shape"] == [1, 1]
    assert forwards["padded"]["logits"]["shape"] == [2, 2]
    layers = [layer["name"] for layer in forwards["short"]["hidden_states"]]
    assert any("text" in name for name in layers)
    assert any("vision" in name for name in layers)


def test_a_model_that_cannot_be_fed_is_compared_in_its_weights(cells, captures):
    reason = (
        "forward takes protein_embeddings (required), which samebits cannot make: give them with "
        "--inputs FILE, or under inputs: in matrix.yaml"
    )
    for stack in (OLD, NEW):
        capture = captures["proteins", stack]
        assert (capture["status"], capture.get("failure")) == ("complete", None)
        assert refusals(capture) == {"forward short": reason, "forward padded": reason}
    cell = cells["proteins", NEW]
    assert (cell.verdict, cell.rest) == ("not observed", "identical")
    assert outcomes(cell)["weights"] == "identical"
    assert reason in cell.headline


def test_a_forward_that_asks_for_more_in_one_stack_is_not_observed_there(cells, captures):
    assert list(captures["asks", OLD]["signals"]["forward"]) == ["short", "padded"]
    capture = captures["asks", NEW]
    assert (capture["status"], capture.get("failure")) == ("complete", None)
    assert capture["signals"]["forward"] == {}
    reason = "forward needs structure, which samebits did not pass: You have to specify structure"
    assert refusals(capture) == {"forward short": reason, "forward padded": reason}
    assert (cells["asks", NEW].verdict, cells["asks", NEW].rest) == ("not observed", "identical")
    assert outcomes(cells["asks", NEW])["weights"] == "identical"


def test_an_argument_that_one_stack_does_not_take_is_refused_for_its_prompt_alone(cells, captures):
    assert list(captures["unbound", OLD]["signals"]["forward"]) == ["short", "padded"]
    capture = captures["unbound", NEW]
    assert list(capture["signals"]["forward"]) == ["short"]
    (reason,) = refusals(capture).values()
    assert "unexpected keyword argument 'attention_mask'" in reason
    assert cells["unbound", NEW].verdict == "identical"
    assert outcomes(cells["unbound", NEW])["logits"] == "identical"


@pytest.mark.parametrize(
    ("model", "message"),
    [("loses", "exactly one of input_ids"), ("unknown-keyword", "unexpected keyword argument")],
)
def test_what_a_forward_raises_by_its_own_fault_fails_the_cell(model, message, cells, captures):
    assert cells[model, NEW].verdict == "failed"
    assert message in cells[model, NEW].failure.message
    assert refusals(captures[model, NEW]) == {}


def test_a_token_with_a_meaning_is_in_a_prompt(cells, captures):
    """Seeded ids have no mask token, so that what a release does with it would pass."""
    cell = cells["masks", NEW]
    assert cell.verdict == "diverged"
    logits = next(signal for signal in cell.signals if signal.signal == "logits")
    differing = {item.subject.prompt for item in logits.items if item.outcome == "differs"}
    assert differing == {"special"}
    assert cells["masks-clean", NEW].verdict in CPU


def test_a_decoder_needs_no_start_token_in_its_config_to_be_observed(captures):
    for stack in (OLD, NEW):
        forwards = captures["t5-without-start", stack]["signals"]["forward"]
        assert list(forwards) == ["short", "padded"]
        assert "decoder_input_ids" in forwards["short"]["inputs"]


def test_one_stack_chose_for_both(folder, report):
    records = list((folder / ".samebits" / "inputs").rglob("*.json"))
    models = {*BUILT, *SAVED, *PLANTED}
    assert sorted(p.parts[-3] for p in records) == sorted(models)
    assert {p.parts[-2] for p in records} == {OLD}
