"""report.html: the report as pages for a browser, which need no server and no network."""
