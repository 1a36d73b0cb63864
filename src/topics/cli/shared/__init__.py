"""What the commands share: arguments, output, times, the connection to a server, and exit codes."""
