"""A stack's process that counts: stack.py as it is, with transformers' calls timed."""
