"""Errors, atomic files, digests, seals, redaction: the ground floor."""
