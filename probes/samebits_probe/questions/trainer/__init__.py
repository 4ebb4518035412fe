"""What transformers' own Trainer does with a model."""
