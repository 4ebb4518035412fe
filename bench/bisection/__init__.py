"""Published regressions whose commit is known, and the search for it."""
