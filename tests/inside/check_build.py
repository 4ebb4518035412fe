"""model.build: the file of a made checkpoint, and where its tensors begin."""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from planting import plant
from safetensors.numpy import load_file
from samebits_probe.model import build
from tiny import RELEASE

GPTJ = {
    "architecture": "gptj",
    "config": {
        "vocab_size": 99,
        "n_embd": 48,
        "n_inner": 80,
        "n_layer": 2,
        "n_head": 4,
        "rotary_dim": 8,
        "n_positions": 64,
        "bos_token_id": 1,
        "eos_token_id": None,
    },
    "head": "causal-lm",
    "seed": 3,
    "gain": 1.0,
}
QWEN = GPTJ | {
    "architecture": "qwen3_moe",
    "config": {
        "vocab_size": 99,
        "hidden_size": 48,
        "intermediate_size": 80,
        "moe_intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": None,
    },
}
"""Both have shapes of which a file of save_pretrained lays some off a boundary of 64 bytes."""


def built(recipe):
    folder = Path(tempfile.mkdtemp()) / "made"
    assert build.build({"recipe": recipe}, str(folder))["check_failure"] is None
    return folder


def header(path):
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    found = json.loads(raw[8:end])
    assert found.pop("__metadata__") == {"format": "pt"}
    return found, end, len(raw)


def recipes():
    return [GPTJ] + ([QWEN] if RELEASE >= (4, 57) else [])


def test_tensors_begin_at_a_boundary_in_the_file():
    for recipe in recipes():
        found, begin, size = header(built(recipe) / "model.safetensors")
        assert begin % 64 == 0
        places = sorted(told["data_offsets"] for told in found.values())
        assert [start for start, _ in places] == [0, *(stop for _, stop in places[:-1])]
        assert begin + places[-1][1] == size
        assert all(told["data_offsets"][0] % 64 == 0 for told in found.values())


def test_a_model_computes_what_it_does_with_every_parameter_copied():
    ids = torch.tensor([[5, 9, 11, 7, 23]])
    for recipe in recipes():
        auto = transformers.AutoModelForCausalLM
        model = auto.from_pretrained(built(recipe), torch_dtype=torch.float32).eval()
        assert [p.data_ptr() % 64 for p in model.parameters()] == [0] * len(
            list(model.parameters())
        )
        with torch.no_grad():
            before = model(input_ids=ids).logits
            for parameter in model.parameters():
                parameter.data = parameter.data.clone()
            after = model(input_ids=ids).logits
        assert torch.equal(before.view(torch.int32), after.view(torch.int32))


def test_odd_sizes_come_last_and_the_values_are_those_that_were_given():
    tensors = {
        "bias": np.arange(99, dtype=np.float32),
        "a.bias": np.arange(3, dtype=np.float32),
        "weight": np.arange(7 * 9, dtype=np.float32).reshape(7, 9),
        "turned": np.arange(64, dtype=np.float32).reshape(4, 16).T,
        "count": np.array(7),
        "allowed": np.array([True, False, True]),
        "small": np.arange(5, dtype=np.float16),
        "even": np.arange(32, dtype=np.float32),
        "none": np.zeros((0, 3), dtype=np.float32),
    }
    path = Path(tempfile.mkdtemp()) / "model.safetensors"
    build._save_aligned(tensors, path)
    read = load_file(path)
    assert read.keys() == tensors.keys()
    for name, array in tensors.items():
        assert read[name].dtype == array.dtype
        assert read[name].shape == array.shape
        assert read[name].tobytes() == np.ascontiguousarray(array).tobytes()
    found, begin, _ = header(path)
    first = {name for name, told in found.items() if told["data_offsets"][0] % 64 == 0}
    assert first >= {"turned", "even", "count"}
    order = sorted(found, key=lambda name: found[name]["data_offsets"])
    assert order[-5:] == ["weight", "bias", "a.bias", "small", "allowed"]
    for name, array in tensors.items():
        assert (begin + found[name]["data_offsets"][0]) % array.itemsize == 0


def test_a_checkpoint_is_the_same_bytes_each_time():
    one, other = (built(GPTJ) / "model.safetensors" for _ in range(2))
    assert one.read_bytes() == other.read_bytes()


def test_a_model_that_save_pretrained_would_split_is_one_file():
    def split(save, model, folder, max_shard_size="1KB", **arguments):
        save(model, folder, max_shard_size=max_shard_size, **arguments)

    with plant(transformers.PreTrainedModel, "save_pretrained", split):
        folder = built(GPTJ)
    assert [path.name for path in folder.glob("model*")] == ["model.safetensors"]


def test_a_model_for_which_the_machine_has_no_memory_is_refused_before_it_is_made():
    large = GPTJ["config"] | {"n_embd": 4096, "n_head": 16, "vocab_size": 200_000_000}
    try:
        built(GPTJ | {"config": large})
    except build.TooLargeError as error:
        assert "gptj with this config has 16" in str(error), error
        assert "under its config:" in str(error)
    else:
        raise AssertionError
    # wide, and there is room
    built(GPTJ | {"config": GPTJ["config"] | {"n_embd": 512, "n_head": 8}})


def test_the_config_of_a_tokenizer_may_leave_out_its_class():
    tokenizer = {"kind": "byte-level", "tokenizer_class": "GPT2TokenizerFast", "slow_files": False}
    tokenizer |= {"parts": None, "config": {"tokenizer_class": None, "model_max_length": 99}}
    folder = built(GPTJ | {"tokenizer": tokenizer})
    written = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    assert "tokenizer_class" not in written
    assert written["model_max_length"] == 99
