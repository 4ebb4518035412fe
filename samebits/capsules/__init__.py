"""How a difference becomes a capsule: asked, shrunk, written, run, and only then kept."""
