"""The signals that make a verdict, one module each, with the unit as ``SIGNAL``."""
