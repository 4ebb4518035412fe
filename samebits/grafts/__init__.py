"""Which pieces of the reference restore its bits."""
