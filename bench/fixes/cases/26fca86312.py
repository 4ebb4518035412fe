"""A batch of texts stays a batch if SmolVLM's image processor gives no rows and columns."""

import numpy as np
import transformers
from PIL import Image
from smolvlm import make  # noqa: F401  a part of the case

CASE = {
    "symptom": "SmolVLM's processor raises IndexError for two texts with return_row_col_info=False",
    "packages": ("torchvision", "num2words"),
    "findings": ("SB836", "SB932"),
    "failure": "list index out of range",
    "says": (r"image_rows", r"return_row_col_info", r"list index out of range"),
    "source": ("SmolVLMProcessor", "processing_smolvlm.py", "expand_text_with_image_tokens"),
}


def observe(folder: str) -> object:
    """Return the number of rows that two texts with one image each become."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    texts = ["<image> what is this", "<image> this is"]
    rows = {}
    for info in (True, False):
        try:
            output = processor(
                text=texts, images=[[image], [image]], padding=True, return_row_col_info=info
            )
            rows[f"return_row_col_info={info}"] = len(output["input_ids"])
        except Exception as error:  # noqa: BLE001  what a user sees
            rows[f"return_row_col_info={info}"] = f"{type(error).__name__}: {error}".splitlines()[0]
    return rows
