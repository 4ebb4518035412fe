"""A stack's process that counts: probe_stack.py as it is, with transformers' calls timed."""
