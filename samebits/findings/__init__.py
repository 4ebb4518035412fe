"""Defects with a name: the rules that recognise them, one module per part of a model's life."""
