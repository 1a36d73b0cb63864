"""The `topics` command: `main` finds the command, and each command is one file in the package of its group.

A command is a module with `build_parser()`, which returns its argument parser, and `run(argv) -> int`, which gets the
arguments after the command's name and returns the exit code. A module is imported only when its command is called, so
no command waits for the imports of another one.

    shared/    arguments, output formats, times, connection, exit codes, contexts
    data/      topics and records
    files/     export and import
    sql/       statements and the prompt
    queues/    jobs
    groups/    consumer groups
    pipeline/  routers, tables, archives, Spark pipelines
    server/    running, measuring and checking a server; logins and completion
"""
