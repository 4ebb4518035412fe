"""process.failure: what a release raises in place of an exception does not hide it."""

from raising import raised
from samebits_probe.process.failure import describe


def import_protobuf_decode_error():
    msg = "requires the protobuf library"
    raise ImportError(msg)


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


def test_advice_that_hides_nothing_is_told():
    alone = facts(import_protobuf_decode_error)
    assert (alone["type"], alone["message"]) == ("ImportError", "requires the protobuf library")
