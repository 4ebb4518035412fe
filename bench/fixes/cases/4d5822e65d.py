"""A video that is given to SmolVLM's chat template is sampled, as its processor says."""

from pathlib import Path

import av
import numpy as np
import transformers
from smolvlm import make  # noqa: F401  a part of the case

CASE = {
    "before": "4.53.0",
    "after": "4.53.1",
    "symptom": "SmolVLM's chat template feeds every frame of a video, and not as many as the processor samples",
    "packages": ("torchvision", "num2words", "av"),
    "says": (r"apply_chat_template.*(frames|pixel_values)",),
    "source": ("SmolVLMProcessor", "processing_smolvlm.py"),
}


def observe(folder: str) -> object:
    """Return the shape of the pixel values of a chat with a video of 24 frames in 6 seconds."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    film = Path(folder) / "film.mp4"
    write(film)
    content = [{"type": "video", "path": str(film)}, {"type": "text", "text": "what is this"}]
    try:
        output = processor.apply_chat_template(
            [{"role": "user", "content": content}],
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            video_load_backend="pyav",
        )
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return list(output["pixel_values"].shape)


def write(film: Path) -> None:
    """Write a video of 24 frames, 4 a second."""
    numbers = np.random.default_rng(0)
    with av.open(str(film), "w") as container:
        stream = container.add_stream("mpeg4", rate=4)
        stream.width = stream.height = 32
        for _ in range(24):
            pixels = numbers.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
