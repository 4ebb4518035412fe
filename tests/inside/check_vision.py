"""vision: torchvision can be imported beside a torch that its library does not fit, and one that fits is left alone."""

import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
from raising import raised
from samebits_probe.process import vision

IMPORT = """
import torch
for name in ("nms", "qnms"):
    @torch.library.register_fake(f"torchvision::{name}")
    def _described(boxes, scores, iou_threshold):
        return boxes
"""
"""What torchvision does when it is imported."""


@contextmanager
def torchvision(library):
    """Put a torchvision in place whose compiled library has these bytes; None: it has none."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "torchvision"
        package.mkdir()
        (package / "__init__.py").write_text(IMPORT)
        if library is not None:
            (package / "_C.so").write_bytes(library)
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)


def is_declared(name):
    return hasattr(torch.ops.torchvision, name)


def imported():
    try:
        import torchvision  # noqa: F401  the one of the test
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_an_import_ends_without_the_library():
    with torchvision(b"of another torch"):
        assert "torchvision::nms" in imported()


def test_an_import_beside_a_library_of_another_torch_works():
    with torchvision(b"of another torch"):
        vision.make_importable()
        vision.make_importable()  # every job asks
        assert imported() == ""
        assert is_declared("nms")
        assert is_declared("qnms")
        assert len(vision._declared) == 1


def test_what_is_declared_cannot_be_called():
    with torchvision(b"of another torch"):
        vision.make_importable()
        boxes = torch.zeros(1, 4), torch.zeros(1), 0.5
        error = raised(NotImplementedError, torch.ops.torchvision.nms, *boxes)
        assert "torchvision::nms" in str(error)


def test_nothing_is_declared_where_the_library_loads():
    loaded = []
    torch.ops.load_library = loaded.append
    with torchvision(b"fits"):
        vision.make_importable()
    assert [Path(path).name for path in loaded] == ["_C.so"]
    assert not vision._declared
    assert not is_declared("nms")


def test_nothing_is_declared_without_torchvision():
    vision.make_importable()
    assert not vision._declared
