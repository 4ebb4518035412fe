"""Loading, feeding and watching a model, over all releases."""
