"""Which arguments of forward have an effect."""
