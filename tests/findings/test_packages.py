"""The packages that an exception names, in the words of releases from 4.48 to 5.24."""

import pytest

from samebits.findings.case import Case
from samebits.findings.packages import missing_packages
from samebits.questions.registry import findings
from samebits.records.capture import Failure
from samebits.records.provenance import IntegritySignal, RoundTrip
from tests.support.builders import Memory, capture, sound

IMPORT, MODULE = "ImportError", "ModuleNotFoundError"
TORCHVISION = (
    "\nDetaModel requires the Torchvision library but it was not found in your environment. "
    "Check out the instructions on the\n"
)
SCIPY = (
    "\nX requires the scipy library but it was not found in your environment. You can install it "
    "with pip:\n`pip install scipy`. Please note that you may need to restart your runtime"
)
PEFT = "The version of PEFT you are using is not compatible, please use a version >= 0.22.0"
NAMED = [
    (IMPORT, TORCHVISION, ("torchvision",)),
    (IMPORT, SCIPY, ("scipy",)),
    (IMPORT, "\nX requires the PIL library but it was not found in your environment.", ("pillow",)),
    (IMPORT, f"{TORCHVISION}{SCIPY}", ("torchvision", "scipy")),
    (
        IMPORT,
        "Package `num2words` is required. Install it with `pip install num2words`",
        ("num2words",),
    ),
    (IMPORT, "were not found: einops, timm. Run `pip install einops timm`", ("einops", "timm")),
    (IMPORT, "You need to install sacremoses to use XLMTokenizer.", ("sacremoses",)),
    (MODULE, "No module named 'timm.data'", ("timm",)),
    (MODULE, "No module named 'cv2'", ("opencv-python-headless",)),
    (
        IMPORT,
        "X requires the OpenCV library but it was not found in your environment.",
        ("opencv-python-headless",),
    ),
    ("ValueError", PEFT, ("peft>=0.22.0",)),
]
NOT_NAMED = [
    (IMPORT, "cannot import name 'LossKwargs' from 'transformers.utils'"),
    (MODULE, "No module named 'transformers.deepspeed'"),
    ("ValueError", TORCHVISION),
    ("OSError", "No module named 'timm'"),
]


@pytest.mark.parametrize(("type_name", "message", "expected"), NAMED)
def test_a_package_is_read_from_an_exception(type_name, message, expected):
    assert missing_packages(f"{type_name}: {message}") == expected


@pytest.mark.parametrize(("type_name", "message"), NOT_NAMED)
def test_another_exception_names_none(type_name, message):
    assert missing_packages(f"{type_name}: {message}") == ()


def found(phase, message=TORCHVISION):
    failure = Failure(phase=phase, type=IMPORT, message=message, traceback="")
    run = capture("5.x", status="failed").model_copy(update={"failure": failure})
    return [f for f in findings(Case(capture=run)) if f.code == "SB318"]


def test_a_load_that_needs_a_package_is_named_with_its_command():
    (finding,) = found("load")
    assert finding.where == "torchvision"
    assert finding.evidence[-1] == "with it: samebits check --package torchvision"


def test_a_module_that_the_user_names_and_another_exception_are_not():
    assert found("import mine") == []
    assert found("load", "cannot import name 'x' from 'y'") == []


def test_a_save_that_wants_a_newer_package_is_no_fault_of_the_model():
    def saved(reason):
        trip = RoundTrip(outcome="save failed", reason=reason)
        signal = IntegritySignal(poison="NaN", round_trip=trip)
        return findings(Case(capture=sound(Memory(), "5.x", integrity=signal)))

    (finding,) = saved(f"ValueError: {PEFT}")
    assert (finding.code, finding.where) == ("SB318", "peft>=0.22.0")
    assert "with it: samebits check --package 'peft>=0.22.0'" in finding.evidence
    (finding,) = saved("ValueError: the version of this file is not compatible")
    assert finding.code == "SB317"
