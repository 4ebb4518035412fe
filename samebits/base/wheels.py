"""Python packages by the modules that code imports, and those that every platform can install."""

from __future__ import annotations

_PACKAGE_OF = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "google": "protobuf",
    "levenshtein": "python-levenshtein",
    "opencv": "opencv-python-headless",
    "opencv-python": "opencv-python-headless",
    "pil": "pillow",
    "sklearn": "scikit-learn",
}
"""Module -> its package."""
WHEELS = frozenset(
    {
        "accelerate", "av", "beautifulsoup4", "einops", "ftfy", "librosa", "num2words",
        "opencv-python-headless", "pillow", "protobuf", "rjieba", "sacremoses", "scikit-learn", "scipy",
        "sentencepiece", "soundfile", "tiktoken", "timm", "torchaudio", "torchvision",
    }
)  # fmt: skip
"""Packages with a wheel for every platform that torch has: a run adds them by itself."""


def package_of(module: str) -> str:
    """Return the package that has a top-level module, in lower case: ``pillow`` of ``PIL``."""
    name = module.lower()
    return _PACKAGE_OF.get(name, name)
