"""``nox -s guide``: what samebits shows of each change that transformers itself announced."""
