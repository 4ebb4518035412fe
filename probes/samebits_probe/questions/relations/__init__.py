"""Relations that must hold inside one cell."""
