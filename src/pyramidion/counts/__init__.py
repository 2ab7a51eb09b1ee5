"""Counts and what follows from them: pure statistics, no clock, no files."""
