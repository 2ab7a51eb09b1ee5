"""Learning on counts."""
