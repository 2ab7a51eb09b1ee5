"""From any container to validated, hashed rows."""
