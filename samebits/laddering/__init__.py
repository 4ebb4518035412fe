"""How the precision ladder judges a pair of cells: pure functions, one noun for each module."""
