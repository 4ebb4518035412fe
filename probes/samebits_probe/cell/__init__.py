"""What is observed of one cell."""
