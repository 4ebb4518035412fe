"""The processors of Idefics 3 count the patches of an image, whatever their backend."""

import transformers
from sizes import GROUPED, TOWER
from tokens import tokenizer_of

CASE = {
    "packages": ("torchvision",),
    "symptom": "Idefics 3 counts another number of tokens than it writes for an image that is not square",
    "findings": ("SB830", "SB866"),
    "failure": "get_number_of_image_patches",
    "says": (r"num_image_tokens", r"num_image_patches", r"tokens.*counts?\b", r"num_patches"),
    "source": (
        "get_number_of_image_patches",
        "_get_num_multimodal_tokens",
        "image_processing_idefics3.py",
        "processing_idefics3.py",
    ),
}
SPECIAL = [
    "<pad>",
    "<s>",
    "<end_of_utterance>",
    "<unk>",
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
]


def make(folder: str) -> None:
    """Write a tiny Idefics 3 with its processor."""
    words = [*SPECIAL, *(f"<row_{r}_col_{c}>" for r in range(1, 4) for c in range(1, 4))]
    tokenizer = tokenizer_of(
        [*words, "what", "is", "this", "\n"],
        added=SPECIAL,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="<end_of_utterance>",
        unk_token="<unk>",
    )
    transformers.Idefics3Processor(
        image_processor=transformers.Idefics3ImageProcessor(
            size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
        ),
        tokenizer=tokenizer,
        image_seq_len=16,
    ).save_pretrained(folder)
    text = {"model_type": "llama", "vocab_size": 64, **GROUPED, "pad_token_id": 0}
    vision = {**TOWER, "image_size": 32, "patch_size": 4}
    config = transformers.Idefics3Config(
        text_config=text, vision_config=vision, image_token_id=4, scale_factor=2, pad_token_id=0
    )
    transformers.Idefics3ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the numbers of tokens of an image that is not square, and of one."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    counted = processor._get_num_multimodal_tokens(image_sizes=[(32, 64), (64, 64)])
    return counted["num_image_tokens"]
