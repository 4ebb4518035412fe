"""Probes: run inside a stack, import nothing of samebits."""
