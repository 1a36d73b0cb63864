"""Leases of jobs: which job is delivered next, to which node, and until when."""
