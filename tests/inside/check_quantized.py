"""quantized: a refusal that a GPU would lift is the machine's; for packages and options it is the release's."""

import json
import tempfile
from pathlib import Path

import torch
import transformers
from raising import raised
from samebits_probe.model import load, quantized
from samebits_probe.process.devices import DeviceMissing
from samebits_probe.process.failure import PhaseFailed
from transformers.quantizers.base import HfQuantizer

FIELDS = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
ON_A_GPU = {"quant_method": "higgs", "bits": 4, "p": 2, "group_size": 256}
WITHOUT_A_PACKAGE = {"quant_method": "quanto", "weights": "int8"}


def loaded(settings):
    """Return the exception of a load of quantised weights, as a cell has it."""
    with tempfile.TemporaryDirectory() as folder:
        config = transformers.LlamaConfig(intermediate_size=20, **FIELDS)
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        path = Path(folder) / "config.json"
        path.write_text(
            json.dumps(json.loads(path.read_text()) | {"quantization_config": settings})
        )
        source = load.Source(folder, None, False, "float32", "default", "cpu")
        return raised(PhaseFailed, load.load_model, source).__cause__


def missing(error):
    try:
        quantized.require_gpu(error)
    except DeviceMissing as reason:
        return str(reason)
    return ""


def raised_in_a_load(call):
    """Return what a call raises below a function of a load that has a quantizer."""
    any_method = type("AnyMethod", (HfQuantizer,), {})
    any_method.__abstractmethods__ = frozenset()
    quantizer = any_method.__new__(any_method)
    quantizer.quantization_config = None
    try:
        call()
    except Exception as error:
        assert quantizer is not None
        return error
    raise AssertionError("it does not raise")


def test_a_refusal_for_want_of_a_gpu_is_the_machine():
    error = loaded(ON_A_GPU)
    assert "GPU" in str(error)
    reason = missing(error)
    assert "this machine has no GPU" in reason
    assert "weights of higgs" in reason
    assert str(error)[:40] in reason
    assert "--devices cuda" in reason
    assert "leave them out" not in reason
    assert not torch.cuda.is_available()  # the question leaves nothing behind


def test_a_refusal_for_want_of_a_package_is_not():
    error = loaded(WITHOUT_A_PACKAGE)
    assert isinstance(error, ImportError)
    assert missing(error) == ""


def test_a_driver_that_is_missing_below_a_quantised_load_is_the_machine():
    def in_the_linker():
        raise ImportError("libcudart.so.12: cannot open shared object file")

    assert "no GPU" in missing(raised_in_a_load(lambda: torch.zeros(1, device="cuda")))
    assert "no GPU" in missing(raised_in_a_load(in_the_linker))


def test_other_exceptions_of_a_load_are_not():
    def of_the_release():
        raise RuntimeError("size mismatch on CUDA weights")

    assert missing(raised_in_a_load(of_the_release)) == ""
    assert missing(None) == ""


def test_a_model_that_is_not_quantised_is_not():
    try:
        torch.zeros(1, device="cuda")
    except Exception as error:
        assert missing(error) == ""
