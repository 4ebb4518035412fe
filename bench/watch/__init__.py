"""The night watch, replayed over the commits of two months."""
