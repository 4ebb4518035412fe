"""The steps of a run, from matrix.yaml to the report."""
