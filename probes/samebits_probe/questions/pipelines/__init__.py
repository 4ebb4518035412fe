"""What ``transformers.pipeline`` answers for a checkpoint."""
