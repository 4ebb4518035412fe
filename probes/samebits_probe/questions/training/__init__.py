"""One training step of a model: loss, gradients, update, and relations between ways to train."""
