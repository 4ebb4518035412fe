"""Which default moved between two releases of transformers; read from wheels, so nothing is installed."""
