"""Jobs that run in stacks, and the cache of what they left."""
