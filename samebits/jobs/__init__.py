"""Jobs that run in stacks, and the cache of their results."""
