"""A model that one stack saves and another stack loads."""
