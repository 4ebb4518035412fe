"""What a tokenizer makes of a corpus of texts and of conversations, and the parts of its backend."""
