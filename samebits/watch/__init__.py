"""The night watch: one issue for each cause by which transformers' main differs from a release."""
