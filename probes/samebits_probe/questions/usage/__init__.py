"""What users do around a model."""
