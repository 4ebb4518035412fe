"""matrix.yaml: its form, its checks, and the plan of the cells to run."""
