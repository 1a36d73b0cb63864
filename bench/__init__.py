"""Benchmarks: always a ratio, taken in one run against a peer or a floor on the same machine, never a bare number."""
