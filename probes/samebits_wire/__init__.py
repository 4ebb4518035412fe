"""What the host and the probes share: it imports the standard library only."""
