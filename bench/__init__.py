"""What does samebits cost, as ratios within one run: ``nox -s bench``, and docs/performance.md."""
