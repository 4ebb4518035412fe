"""Progress and summary on the terminal."""
