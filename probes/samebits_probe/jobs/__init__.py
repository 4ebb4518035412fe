"""Jobs other than a cell and a trace."""
