"""Which pieces of the reference give a cell its bytes: what to try, how it is run, what it shows."""
