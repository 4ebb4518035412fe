"""model.input_set: arguments that a user declares, keeps in a file or returns from a function."""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import feeding
import numpy as np
import torch
from raising import raised
from safetensors.torch import save_file
from samebits_probe.model import feed, input_set
from samebits_probe.model.choice import NotFed, Parameter, Signature

CONFIG = SimpleNamespace(hidden_size=16, vocab_size=40)
NAMES = ("input_ids", "embeddings", "attention_mask", "scaled", "mode", "coverage")
SIGNATURE = Signature(tuple(Parameter(name) for name in NAMES))
FORWARD = """
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

class GivenConfig(PretrainedConfig):
    model_type = "given"
    def __init__(self, hidden_size=16, **kwargs):
        self.hidden_size = hidden_size
        super().__init__(**kwargs)

class GivenModel(PreTrainedModel):
    config_class = GivenConfig
    def forward(self, embeddings: torch.FloatTensor, coverage: torch.FloatTensor, scaled=False):
        return BaseModelOutput(last_hidden_state=embeddings)
"""


def make(arguments, name="mine", places=None, **more):
    return input_set.make(name, {"arguments": arguments, **more}, CONFIG, SIGNATURE, places or {})


def refusal(function):
    return str(raised(NotFed, function))


def test_seeded_numbers_depend_on_names_and_fit_their_bounds():
    floats = {"shape": [2, 5, "hidden_size"], "dtype": "float32"}
    numbers = {"shape": [3, 50], "dtype": "int64", "low": 4, "high": "vocab_size"}
    flags = {"shape": [64], "dtype": "bool"}
    made = make({"embeddings": floats, "input_ids": numbers, "coverage": flags}).tensors
    assert made["embeddings"].shape == (2, 5, 16)
    assert made["embeddings"].dtype == torch.float32
    assert -1 <= made["embeddings"].min() < -0.5 < 0.5 < made["embeddings"].max() < 1
    assert made["input_ids"].min() == 4
    assert made["input_ids"].max() == 39
    assert made["coverage"].dtype == torch.bool
    assert 10 < made["coverage"].sum() < 54
    again = make({"embeddings": floats}).tensors["embeddings"]
    assert again.numpy().tobytes() == made["embeddings"].numpy().tobytes()
    others = make({"embeddings": floats}, "other").tensors["embeddings"]
    assert others.numpy().tobytes() != again.numpy().tobytes()
    bounded = make({"embeddings": floats | {"low": 3, "high": 4, "dtype": "bfloat16"}}).tensors
    assert bounded["embeddings"].dtype == torch.bfloat16
    assert bounded["embeddings"].min() >= 3
    assert bounded["embeddings"].max() <= 4


def test_masks_and_constants():
    made = make(
        {
            "attention_mask": {"shape": [2, 6], "mask": ["left 2", "right 1"]},
            "scaled": {"value": True},
            "mode": {"value": "mean"},
            "coverage": {"value": [[0.5, 1]], "dtype": "float64"},
        }
    )
    assert made.tensors["attention_mask"].tolist() == [[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]]
    assert made.constants == {"scaled": True, "mode": "mean"}
    assert made.tensors["coverage"].dtype == torch.float64
    assert made.real_rows() == [[2, 6], [0, 5]]


def test_arrays_of_a_file_are_read_without_pickle():
    folder = Path(tempfile.mkdtemp())
    array = np.arange(6, dtype=np.float32).reshape(1, 6)
    np.savez(folder / "a.npz", embeddings=array, scaled=np.array(True))
    made = make({}, file=str(folder / "a.npz"))
    assert made.tensors["embeddings"].numpy().tobytes() == array.tobytes()
    assert made.constants == {"scaled": True}
    save_file({"embeddings": torch.ones(2, dtype=torch.bfloat16)}, folder / "a.safetensors")
    made = make({"mode": {"value": "x"}}, file=str(folder / "a.safetensors"))
    assert made.tensors["embeddings"].dtype == torch.bfloat16
    assert made.constants == {"mode": "x"}
    np.savez(folder / "o.npz", embeddings=np.array([{}], dtype=object))
    assert "o.npz cannot be read" in refusal(lambda: make({}, file=str(folder / "o.npz")))


def returned(text):
    path = Path(tempfile.mkdtemp()) / "own.py"
    path.write_text(text)
    return input_set.make(
        "mine", {"function": f"{path}:make"}, CONFIG, SIGNATURE, {"": "m.yaml:1:2"}
    )


def test_a_function_is_seeded_and_its_mistakes_are_named():
    draw = (
        "def make(config, seed, torch):\n"
        "    return {'embeddings': torch.randn(1, config.hidden_size), 'scaled': seed > 0}\n"
    )
    first, second = returned(draw), returned(draw)
    assert first.constants == {"scaled": True}
    pair = [made.tensors["embeddings"].numpy().tobytes() for made in (first, second)]
    assert pair[0] == pair[1]
    wrong = "def make(config, seed, torch):\n    x = 1\n    return 1 / 0\n"
    assert (
        refusal(lambda: returned(wrong))
        == "own.py:3: make raised ZeroDivisionError: division by zero"
    )
    assert "make returned Tensor: return a dict" in refusal(
        lambda: returned("def make(config, seed, torch):\n    return torch.ones(1)\n")
    )
    assert "embeddings is list: return a tensor" in refusal(
        lambda: returned("def make(config, seed, torch):\n    return {'embeddings': [1]}\n")
    )
    reason = refusal(
        lambda: returned(
            "def make(config, seed, torch):\n    return {'embedings': torch.ones(1)}\n"
        )
    )
    assert "what make returns has embedings" in reason
    assert "did you mean embeddings?" in reason


def test_a_mistake_has_its_place():
    places = {"": "matrix.yaml:3:5", "embeddings": "matrix.yaml:4:7"}
    wrong = {"embeddings": {"shape": ["hiden_size"], "dtype": "float32"}}
    assert refusal(lambda: make(wrong, places=places)) == (
        "matrix.yaml:4:7: embeddings: the config has no field hiden_size: did you mean hidden_size?"
    )
    assert "has no tensor" in refusal(lambda: make({"scaled": {"value": True}}))


def model(arguments):
    folder = Path(tempfile.mkdtemp())
    (folder / "modeling_given.py").write_text(FORWARD)
    auto = {"AutoConfig": "modeling_given.GivenConfig", "AutoModel": "modeling_given.GivenModel"}
    config = {"model_type": "given", "architectures": ["GivenModel"], "auto_map": auto}
    (folder / "config.json").write_text(json.dumps(config))
    prompts = {"mine": {"arguments": arguments}} if arguments else {"short": {"length": 9}}
    return {"source": str(folder), "trust_remote_code": True, "prompts": prompts}


FLOATS = {"shape": [2, 3, "hidden_size"], "dtype": "float32"}


def test_what_is_chosen_once_is_fed_in_the_dtype_of_the_cell():
    chosen = feeding.chosen(
        model({"embeddings": FLOATS, "coverage": FLOATS, "scaled": {"value": True}})
    )
    inputs = feed.Feed(chosen, torch.bfloat16, "cpu").inputs("mine", None)
    assert inputs.is_set
    assert inputs.kwargs["scaled"] is True
    assert inputs.kwargs["embeddings"].dtype == torch.bfloat16
    # one forward of a model that samebits cannot feed is fed with the user's
    single = feed.Feed(chosen, torch.float32, "cpu").single()
    assert list(single.kwargs) == ["embeddings", "coverage", "scaled"]


def test_a_model_that_nobody_feeds_says_what_to_write():
    record = feeding.record_of(feeding.chosen(model({})))["prompts"]["short"]
    assert record["reason"].startswith(
        "forward takes embeddings: torch.FloatTensor, coverage: torch"
    )
    assert record["paste"].splitlines()[2:] == [
        "    arguments:",
        "      embeddings: {shape: [1, 12, hidden_size], dtype: float32}",
        "      coverage: {shape: [1, 12, hidden_size], dtype: float32}",
    ]


def test_one_missing_argument_is_named_for_the_set_alone():
    record = feeding.record_of(feeding.chosen(model({"embeddings": FLOATS})))["prompts"]["mine"]
    assert (
        "forward needs coverage: torch.FloatTensor, which the set does not have" in record["reason"]
    )
