"""What a page says of one cell."""
