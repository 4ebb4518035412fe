"""Which commit changed a model's bits: ``samebits bisect``."""
