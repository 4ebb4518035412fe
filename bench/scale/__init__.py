"""``nox -s scale``: what 10,000 models under 34 releases take, and a run of 100,000 cells with fake stacks."""
