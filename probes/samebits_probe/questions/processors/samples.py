"""Seeded images, videos and sounds: the same numbers in every stack, made without any codec."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

RATE = 16_000
"""Samples per second that most models expect."""


def uniform(seed: int, count: int) -> np.ndarray:
    """Return float64 numbers in [0, 1), which depend on the seed alone and on no release."""
    raw = np.random.Philox(key=seed).random_raw(count)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def picture(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """Return a uint8 image, channels last: slow waves, an edge and noise, of all frequencies."""
    y = np.arange(height, dtype=np.float64)[:, None, None]
    x = np.arange(width, dtype=np.float64)[None, :, None]
    c = np.arange(channels, dtype=np.float64)[None, None, :]
    triangle = np.abs((x * 7 + y * 5 + c * 61 + seed * 17) % 256 - 128) * 1.2
    edge = ((x * 3 + y) % 40 < 8) * 60.0
    noise = uniform(seed, height * width * channels).reshape(height, width, channels) * 60.0
    return np.clip(triangle + edge + noise, 0, 255).astype(np.uint8)


def png(image: np.ndarray) -> bytes:
    """Return an RGB image as the bytes of a PNG file."""
    height, width = image.shape[:2]
    rows = b"".join(b"\0" + image[y].tobytes() for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def png_file() -> bytes:
    """Return the bytes of a file with an image."""
    return png(picture(71, 59, seed=4))


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)


def arrays() -> dict[str, Callable[[], Any]]:
    """Return images as numpy arrays, by the name of the case."""
    whole = picture(53, 70)
    return {
        "uint8 array, channels last": lambda: whole,
        "uint8 array, channels first": lambda: np.ascontiguousarray(whole.transpose(2, 0, 1)),
        "float32 array in 0..1": lambda: whole.astype(np.float32) / np.float32(255),
        "small array": lambda: picture(9, 11, seed=1),
    }


def tensors() -> dict[str, Callable[[], Any]]:
    """Return images as tensors with their channels first, by the name of the case."""
    import torch  # noqa: PLC0415  the other samples are tested where no torch is

    whole = arrays()["uint8 array, channels first"]()
    return {
        "uint8 tensor, channels first": lambda: torch.from_numpy(whole),
        "two images as one tensor": lambda: torch.from_numpy(np.stack([whole, whole[:, ::-1]])),
    }


def pictures() -> dict[str, Callable[[], Any]]:
    """Return images of the library Pillow, by the name of the case; calls raise without it.

    Other kinds of images come before larger ones, as slow processors have no time for all of them.
    """
    return {
        "RGB 97 x 64": lambda: _pillow(picture(97, 64)),
        "gray": lambda: _pillow(picture(60, 45, 1)[:, :, 0]),
        "RGBA": lambda: _pillow(picture(45, 60, 4)),
        "palette": lambda: _palette(picture(50, 50, 1)[:, :, 0]),
        "one pixel": lambda: _pillow(picture(1, 1)),
        "very wide": lambda: _pillow(picture(30, 200)),
        "PNG file": lambda: _opened(png_file()),
        "two images": lambda: [_pillow(picture(64, 48)), _pillow(picture(40, 90, seed=5))],
        "RGB 224 x 224": lambda: _pillow(picture(224, 224, seed=2)),
        "RGB 480 x 360": lambda: _pillow(picture(480, 360, seed=3)),
    }


def _pillow(image: np.ndarray) -> Any:
    from PIL import Image  # noqa: PLC0415  a stack need not have it

    return Image.fromarray(image)


def _palette(image: np.ndarray) -> Any:
    colors = [int(v) for v in picture(16, 16, 3, seed=6).reshape(-1)]
    indexed = _pillow(image).convert("L").copy()
    indexed.putpalette(colors)
    return indexed


def _opened(data: bytes) -> Any:
    from PIL import Image  # noqa: PLC0415  a stack need not have it

    return Image.open(BytesIO(data))


def videos() -> dict[str, Callable[[], Any]]:
    """Return videos as arrays of frames, channels last."""
    return {
        "8 frames 64 x 48": lambda: clip(64, 48, 8),
        "3 frames": lambda: clip(40, 56, 3),
        "6 frames": lambda: clip(40, 56, 6),
        "one frame": lambda: clip(40, 56, 1),
        "gray": lambda: frames(1),
        "RGBA": lambda: frames(4),
    }


def several_videos() -> dict[str, Callable[[], Any]]:
    """Return two videos of one call, none of whose frames the other one has."""
    return {
        "two videos of one shape": lambda: [clip(40, 56, 3), clip(40, 56, 3, seed=3)],
        "two videos of different shapes": lambda: [clip(40, 56, 3), clip(64, 48, 5, seed=3)],
    }


def clip(height: int, width: int, count: int, seed: int = 0) -> np.ndarray:
    """Return a video, channels last."""
    return np.stack([picture(height, width, seed=seed + i) for i in range(count)])


def film() -> list[Any]:
    """Return a video of three frames, each an image of Pillow."""
    return [_pillow(frame) for frame in videos()["3 frames"]()]


def metadata(count: int, fps: float = 4.0) -> dict[str, Any]:
    """Return what a user knows of a video."""
    return {"total_num_frames": count, "fps": fps, "duration": count / fps}


def frames(channels: int, *, opaque: bool = False) -> np.ndarray:
    """Return a video of three frames, channels last; ``opaque``: with the largest value in the last one."""
    video = np.stack([picture(40, 56, channels, seed=i) for i in range(3)])
    if opaque:
        video[..., -1] = 255
    return video


def sound(count: int, seed: int = 0) -> np.ndarray:
    """Return a mono float32 sound in -1..1: a rising sawtooth and noise."""
    t = np.arange(count, dtype=np.float64)
    phase = (t * 0.01 + t * t * 2.0**-20) % 1.0
    wave = (phase - 0.5) * 0.8 + (uniform(seed, count) - 0.5) * 0.2
    return wave.astype(np.float32)


def sounds() -> dict[str, tuple[Callable[[], Any], int]]:
    """Return sounds and their sampling rates, by the name of the case."""
    return {
        "1 s": (lambda: sound(RATE), RATE),
        "44.1 kHz": (lambda: sound(44_100), 44_100),
        "stereo": (lambda: np.stack([sound(8_000), sound(8_000, 1)]), RATE),
        "silence": (lambda: np.zeros(RATE, np.float32), RATE),
        "16 samples": (lambda: sound(16), RATE),
        "float64": (lambda: sound(8_000, 2).astype(np.float64), RATE),
        "two of different lengths": (lambda: [sound(9_000), sound(5_000, 3)], RATE),
        "31 s": (lambda: sound(31 * RATE, 4), RATE),
    }
