"""Stand-in: the vendored package."""
