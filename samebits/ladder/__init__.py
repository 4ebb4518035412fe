"""The precision ladder: whether a difference is rounding or another function."""
