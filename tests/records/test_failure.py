"""The frame of an exception that is named."""

import pytest

from samebits.records.capture import Failure, Frame

OWN = Frame(file="modeling_mine.py", line=1, function="forward", own=True)
MODEL = Frame(file="transformers/models/llama/modeling_llama.py", line=2, function="forward")
AUTO = Frame(file="transformers/models/auto/auto_factory.py", line=3, function="from_pretrained")
SHARED = Frame(file="transformers/cache_utils.py", line=4, function="update")
TORCH = Frame(file="torch/nn/functional.py", line=5, function="linear")
PACKAGE = Frame(file="stream_generator/main.py", line=1, function="<module>")


def changed(frame):
    return frame.model_copy(update={"changed": True})


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([], None),
        ([TORCH], TORCH),
        ([AUTO, SHARED, TORCH], TORCH),
        ([AUTO, SHARED, MODEL, TORCH], MODEL),
        ([changed(AUTO), SHARED, MODEL], MODEL),
        ([AUTO, MODEL, changed(SHARED), TORCH], changed(SHARED)),
        ([changed(MODEL), MODEL, TORCH], changed(MODEL)),
        ([OWN, changed(SHARED), TORCH], OWN),
        ([AUTO, changed(SHARED), PACKAGE], PACKAGE),
        ([OWN, changed(SHARED), PACKAGE], OWN),
        ([PACKAGE, changed(SHARED), TORCH], changed(SHARED)),
    ],
)
def test_the_place_is_a_line_that_changed_or_one_of_the_model_where_torch_raises(frames, place):
    failure = Failure(phase="load", type="E", message="", traceback="", frames=frames)
    assert failure.place == place


@pytest.mark.parametrize(
    ("type_name", "message", "expected"),
    [
        ("OSError", "[Errno 28] No space left on device", True),
        ("OSError", "We couldn't connect to 'https://huggingface.co' to load the files", True),
        ("OSError", "…/copy does not appear to have a file named preprocessor_config.json.", False),
        ("OSError", "Error no file named model.safetensors found in directory x.", False),
        ("MemoryError", "", True),
        ("ValueError", "shapes differ", False),
    ],
)
def test_a_file_that_the_checkpoint_does_not_have_is_missing_in_every_run(
    type_name, message, expected
):
    failure = Failure(phase="load", type=type_name, message=message, traceback="")
    assert failure.may_be_the_machine is expected
