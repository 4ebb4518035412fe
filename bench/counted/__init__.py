"""probes/stack.py with transformers' calls timed."""
