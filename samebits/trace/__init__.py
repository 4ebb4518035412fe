"""Analysis of traces: two are joined by content to find where a difference starts."""
