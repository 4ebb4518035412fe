"""Helpers without knowledge of models: errors, atomic files, digests, seals, redaction."""
