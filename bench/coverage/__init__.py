"""Which model types run as tiny models, in which releases: ``nox -s coverage``."""
