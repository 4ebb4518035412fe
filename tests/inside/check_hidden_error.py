"""process.failure: what a release raises in place of an exception does not hide it."""

import re
import tempfile

import tiny
import transformers
from raising import raised
from samebits_probe.process import failure
from samebits_probe.process.failure import describe
from tiny import model


def import_protobuf_decode_error():
    raise ImportError("requires the protobuf library")


def loads():
    try:
        [("<pad>", 0.0)].index(("<unk>", 0.0))
    except import_protobuf_decode_error():
        raise AssertionError from None


def facts(function):
    return describe("tokenizer", raised(ImportError, function))


def test_advice_to_install_protobuf_hides_nothing():
    """Of tokenization_utils_base.py: the except clause itself raises where protobuf is not installed."""
    of_load = facts(loads)
    assert (of_load["type"], of_load["message"]) == (
        "ValueError",
        "('<unk>', 0.0) is not in list",
    )
    assert of_load["frames"][-1]["function"] == "loads"


def test_advice_that_hides_nothing_stays():
    alone = facts(import_protobuf_decode_error)
    assert (alone["type"], alone["message"]) == ("ImportError", "requires the protobuf library")


def test_a_tensor_of_another_shape_is_named():
    """5.x logs its name, and raises an exception that points to the log."""
    made = model()
    with tempfile.TemporaryDirectory() as folder:
        made.save_pretrained(folder)
        config = transformers.AutoConfig.from_pretrained(folder)
        config.intermediate_size *= 2
        load = type(made).from_pretrained
        error = raised(RuntimeError, lambda: load(folder, config=config))
    message = describe("load", error)["message"]
    hidden, inner = made.config.hidden_size, made.config.intermediate_size
    assert str([hidden, inner]) in message
    assert str([hidden, 2 * inner]) in message
    if transformers.__version__[0] != "4":  # whose words have no name of the module
        assert "size mismatch for model.layers.0.mlp.down_proj.weight" in message


def test_an_exception_names_the_line_of_the_library_and_none_of_a_test():
    model = tiny.llama()
    try:
        model(input_ids="no tensor")
    except Exception as error:
        text = failure.raised(error, 20)
    assert re.search(r" \(at transformers/[\w/]+\.py:\d+ in \w+\)$", text), text
    assert failure.raised(raised(ValueError, int, "here")).endswith("'here'")
