"""Reports for users: report.md, and report.json with the same content."""
