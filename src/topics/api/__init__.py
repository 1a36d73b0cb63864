"""The API, declared once: every operation with its path, names, scope, types, errors and documentation.

Routing, permission checks, request decoding, both clients, `/openapi.json`, `/docs` and `docs/api.md` derive from these
declarations. A module declares the operations of one noun; `operations.py` lists all of them.
"""
