"""From a model to a run: ``samebits check``, and ``samebits init``, which writes matrix.yaml."""
