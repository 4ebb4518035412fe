"""Made sounds and videos in the place of files that a conversation names by their paths.

Which package decodes a file differs between releases, and an environment need not have one. Each
stand-in notes what it is asked for, and is None where the release reads no such files.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import numpy as np
import transformers

from samebits_probe.questions.processors import samples

Reading = AbstractContextManager[Any] | None

_FRAMES = 24


def sounds(rates: list[int]) -> Reading:
    """Let a sound of half a second be read at any rate; note the rates."""
    # not imported with this module: the import of it puts another module in the place of transformers
    module = transformers.processing_utils
    if not hasattr(module, "load_audio"):
        return None

    def load(_path: Any, sampling_rate: int = samples.RATE, **_options: Any) -> Any:
        rates.append(int(sampling_rate))
        return samples.sound(int(sampling_rate) // 2)

    return mock.patch.object(module, "load_audio", load)


def videos(counts: list[int]) -> Reading:
    """Let a video of six seconds be read, sampled as the release asks for it; note the numbers of frames."""
    module: Any = transformers.processing_utils
    base: Any = sys.modules.get("transformers.video_processing_utils")
    fetch = getattr(getattr(base, "BaseVideoProcessor", None), "fetch_videos", None)
    is_fetched = fetch is not None and "sample_indices_fn" in inspect.signature(fetch).parameters
    own = getattr(base if is_fetched else module, "load_video", None)
    home: Any = sys.modules.get(getattr(own, "__module__", ""))
    if not hasattr(home, "default_sample_indices_fn"):
        return None

    def load(
        _path: Any, num_frames: Any = None, fps: Any = None, sample_indices_fn: Any = None, **_: Any
    ) -> Any:
        metadata = home.VideoMetadata(**samples.metadata(_FRAMES), video_backend="pyav")
        options = {} if sample_indices_fn else {"num_frames": num_frames, "fps": fps}
        ask = sample_indices_fn or home.default_sample_indices_fn
        places = np.asarray(ask(metadata=metadata, **options), int)
        counts.append(len(places))
        metadata.frames_indices = places
        return samples.clip(32, 32, _FRAMES)[places], metadata

    def fetch_made(self: Any, paths: Any, sample_indices_fn: Any = None) -> Any:
        if isinstance(paths, (list, tuple)):
            return list(
                zip(*[fetch_made(self, path, sample_indices_fn) for path in paths], strict=True)
            )
        return load(paths, sample_indices_fn=sample_indices_fn)

    if is_fetched:
        return mock.patch.object(base.BaseVideoProcessor, "fetch_videos", fetch_made)
    return mock.patch.object(module, "load_video", load)


READ = {"audio": (sounds, "sampling_rate"), "video": (videos, "n_frames")}
"""Type of a part of a conversation -> its stand-in, and the name of what that notes."""
