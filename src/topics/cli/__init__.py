"""The `topics` command: a tiny `main` that finds the command, and one file for each command.

A command is a module here with `run(argv) -> int`, which gets the arguments after its name and returns the
exit status. It is imported only when it is asked for, so that no command pays for what another one needs.
"""
