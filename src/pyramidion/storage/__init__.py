"""Bytes that last: ciphers, keys, the catalogue, hot rows and table files."""
