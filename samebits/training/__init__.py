"""Rules for the training step: what two releases teach a model, and where they part."""
