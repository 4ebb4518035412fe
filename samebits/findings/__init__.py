"""Rules that recognise known defects, one module for each area of a model."""
