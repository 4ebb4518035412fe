"""matrix.yaml: its form, its checks, and the plan that follows from it."""
