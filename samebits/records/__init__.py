"""Records that are written to disk or into the report; they contain no logic."""
