"""A durable event engine: append-only topics with a JSON HTTP API, kept in one directory by one process.

Each package says in its docstring what it is for. They import one another in one direction only:

    model    values and errors that all packages share       imports nothing of ours
    wire     encodings without I/O                           -> model
    engine   pure decisions: topics, leases, retention       -> model
    storage  files: frames, log, segments                    -> model
    broker   decides, commits, applies, notifies             -> engine, storage, wire
    server   HTTP around the broker                          -> broker
    cli      one file per command                            -> all that it starts
    testing  fakes with the guarantees of the real objects

`tests/test_imports.py` checks this. Nothing is imported here, so `import topics` costs nothing.
"""

__version__ = "0.1.0"
