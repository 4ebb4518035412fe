"""Words that both sides of the measurement use."""

NOT_ASKED = "-"
"""What does not apply to a class: it does not generate, or has no loss."""
NOT_MADE = "not made"
NO_CLASS = "no model class"
NO_FORWARD = "has no forward"
"""In a reason of jobs.auto for a class that computes nothing by itself."""
