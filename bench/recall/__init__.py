"""``nox -s recall``: how many published regressions of transformers samebits finds and names."""
