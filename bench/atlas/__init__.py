"""The atlas: a tiny model of each type under many releases, as data and as pages."""
