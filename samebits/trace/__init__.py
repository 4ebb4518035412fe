"""Two traces joined by content: where a difference starts."""
