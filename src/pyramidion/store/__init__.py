"""The embedded store: windows, their life, what is observed and what is served."""
