"""What other classes than its own read of a checkpoint."""
