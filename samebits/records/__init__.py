"""Records that go to disk or into the report, without logic."""
