"""What the sources of a release state of its defaults: read by ``nox -s defaults`` alone."""
