"""The precision ladder: rounding or another function."""
