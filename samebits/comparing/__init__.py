"""The signals, one module for each kind, that samebits/compare.py compares."""
