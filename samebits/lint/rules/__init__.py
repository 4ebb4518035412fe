"""Rules, one module per group of findings; :mod:`samebits.lint.registry` finds them by itself."""
