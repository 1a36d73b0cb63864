"""A durable event engine: append-only topics with a JSON HTTP API, kept in one directory by one process.

The rooms, each a package whose docstring says what it is, import one another in one direction only:

    model    values and errors everyone shares               imports nothing of ours
    engine   what should happen: topics, leases, retention   -> model
    storage  how it is kept: frames, log, segments           -> model
    broker   joins the two: decide, commit, apply, wake      -> engine, storage
    server   HTTP around the broker                          -> broker
    cli      one file a command                              -> everything it starts
    testing  fakes that keep the promises of the real thing

`tests/test_doors.py` holds this. Nothing is imported here, so `import topics` costs nothing.
"""

__version__ = "0.1.0"
