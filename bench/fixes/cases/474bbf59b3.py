"""Fuyu's processor counts the tokens of an image that is not square as its call makes them."""

import tokenizers
import transformers
from sizes import PLAIN_TEXT

CASE = {
    "symptom": "Fuyu's processor tells a server a wrong number of tokens for an image that is not square",
    "says": (r"_get_num_multimodal_tokens", r"num_image_tokens"),
    "source": ("FuyuProcessor", "processing_fuyu.py"),
}
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "|SPEAKER|", "|NEWLINE|"]


def make(folder: str) -> None:
    """Write a tiny Fuyu with its processor."""
    words = [*SPECIAL, "▁", "what", "is", "this"]
    vocab = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="<unk>"))
    backend.normalizer = tokenizers.normalizers.Prepend("▁ ")
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    processor = transformers.FuyuProcessor(
        image_processor=transformers.FuyuImageProcessor(
            size={"height": 40, "width": 80}, patch_size={"height": 10, "width": 10}
        ),
        tokenizer=tokenizer,
    )
    processor.save_pretrained(folder)
    text = {"model_type": "persimmon", **PLAIN_TEXT, "max_position_embeddings": 64}
    config = transformers.FuyuConfig(
        text_config=text, patch_size=10, image_size=40, image_token_id=4, **text
    )
    transformers.FuyuForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of tokens of images of some heights and widths."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    sizes = [(30, 30), (20, 60), (40, 10)]
    return processor._get_num_multimodal_tokens(image_sizes=sizes)["num_image_tokens"]
