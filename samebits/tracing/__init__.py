"""Where a difference starts: two traces joined by content."""
