"""One file per hot path, each beside its peer; ratios of one run."""
