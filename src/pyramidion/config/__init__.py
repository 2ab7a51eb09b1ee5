"""What a user declares: schema, features, labels, settings, durations, and TOML."""
