"""Every operation of a forward, by content."""
