"""What a user reads after a run: report.md, and report.json with the same content."""
