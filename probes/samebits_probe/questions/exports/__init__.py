"""Whether torch.export and torch.jit.trace take the model, and whether what they make computes the same."""
