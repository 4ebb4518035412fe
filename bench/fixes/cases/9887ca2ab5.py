"""ESM rescales the embeddings of a sequence with masks by its own length, not by the padded one."""

from pathlib import Path

import torch
import transformers
from sizes import SMALL

CASE = {
    "symptom": "ESM-2 gives other logits for a masked sequence that is padded: token dropout counts the padding",
    "signals": ("logits", "hidden_states", "last_hidden_state"),
    "says": (r"Esm\w*[Ee]mbeddings", r"token_dropout", r"modeling_esm"),
    "source": ("EsmEmbeddings", "EsmModel", "modeling_esm.py"),
}
TOKENS = """<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1>
<mask>"""


def make(folder: str) -> None:
    """Write a tiny ESM-2 with its tokenizer."""
    tokens = TOKENS.split()
    path = Path(folder) / "vocab.txt"
    path.write_text("\n".join(tokens), "utf-8")
    transformers.EsmTokenizer(str(path)).save_pretrained(folder)
    config = transformers.EsmConfig(
        vocab_size=len(tokens),
        mask_token_id=tokens.index("<mask>"),
        pad_token_id=tokens.index("<pad>"),
        **SMALL,
        max_position_embeddings=64,
        position_embedding_type="rotary",
        emb_layer_norm_before=False,
        token_dropout=True,
        initializer_range=0.3,
    )
    transformers.EsmForMaskedLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return logits at the mask of a short protein, alone and beside a longer one."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    short, long = "MKT<mask>LA", "MKTAYIAKQRQISFVKSHFSRQLEERLG"
    seen = {}
    for name, proteins in {"alone": [short], "padded": [short, long]}.items():
        inputs = tokenizer(proteins, return_tensors="pt", padding=True)
        with torch.no_grad():
            logits = model(**inputs).logits
        place = int((inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0, 0])
        seen[name] = [round(value, 2) for value in logits[0, place, 4:8].tolist()]
    return seen
