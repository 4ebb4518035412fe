"""A checkpoint has a tokenizer if a file of one is in its folder, whatever the name of its vocabulary."""

import pytest

from samebits_wire.vocabularies import has_no_model, has_tokenizer

OF_NO_TOKENIZER = (
    *("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *(
        "chat_template.jinja",
        "modeling_own.py",
        "tokenization_own.py",
        "train_tokenizer.py",
        "README.md",
    ),
    *(
        "model.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "model-00001-of-2.gguf",
    ),
    *("special_tokens_map.json", "added_tokens.json", "emoji.json", "labels.txt"),
)


@pytest.mark.parametrize(
    "name",
    [
        *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tokenizer.model.v3"),
        *("spm.model", "spm_char.model", "spiece.model", "sentencepiece.model", "tiktoken.model"),
        *(
            "sentencepiece.bpe.model",
            "source.spm",
            "target.spm",
            "prophetnet.tokenizer",
            "qwen.tiktoken",
        ),
        *(
            "vocab.txt",
            "vocab.json",
            "vocab.pkl",
            "vocab-src.json",
            "target_vocab.json",
            "zh.vocab",
        ),
        *("merges.txt", "bpe.codes", "tokenizer.bpe", "tekken.json", "byte_maps.json"),
    ],
)
def test_one_file_of_a_tokenizer_is_sign_enough(tmp_path, name):
    for other in OF_NO_TOKENIZER:
        (tmp_path / other).touch()
    assert not has_tokenizer(tmp_path)
    (tmp_path / name).touch()
    assert has_tokenizer(tmp_path)


def test_a_folder_of_such_a_name_is_no_file(tmp_path):
    (tmp_path / "old.model").mkdir()
    assert not has_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "spiece.model", "preprocessor_config.json"])
@pytest.mark.parametrize(
    "beside",
    [
        *(
            "config.json",
            "model.safetensors",
            "pytorch_model.bin",
            "adapter_config.json",
            "params.json",
        ),
        *("consolidated.00.pth", "m.Q4.gguf", "model_index.json", "unet/config.json"),
    ],
)
def test_a_tokenizer_or_a_processor_alone_is_no_model_and_with_more_it_may_be_one(
    tmp_path, name, beside
):
    assert not has_no_model(tmp_path)
    (tmp_path / name).touch()
    assert has_no_model(tmp_path)
    (tmp_path / beside).parent.mkdir(exist_ok=True)
    (tmp_path / beside).touch()
    assert not has_no_model(tmp_path)
    assert not has_no_model(tmp_path / name)
