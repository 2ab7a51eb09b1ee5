"""The service: streams over HTTP."""
