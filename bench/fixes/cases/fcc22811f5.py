"""T5Gemma 2 makes the decoder's ids of labels, as collators ask for it."""

import t5gemma2
import torch
import transformers

CASE = {
    "symptom": "DataCollatorForSeq2Seq raises TypeError with T5Gemma 2",
    "failure": "unexpected keyword argument 'labels'",
    "says": (r"prepare_decoder_input_ids_from_labels", r"DataCollatorForSeq2Seq"),
    "source": ("prepare_decoder_input_ids_from_labels", "modeling_t5gemma2.py"),
}


def make(folder: str) -> None:
    """Write a tiny T5Gemma 2."""
    t5gemma2.make(folder)


def observe(folder: str) -> object:
    """Return the decoder's ids that the collator's call makes of labels."""
    model = transformers.T5Gemma2ForConditionalGeneration.from_pretrained(folder)
    # as transformers.DataCollatorForSeq2Seq calls it
    ids = model.prepare_decoder_input_ids_from_labels(labels=torch.tensor([[5, 6, 7, -100]]))
    return ids.tolist()
