"""Environments of transformers releases and the processes that run in them."""
