"""``samebits golden``: whether a test's expected values differ by rounding or by a behaviour change."""
