"""Exit codes of all commands. `topics check` and `topics repair` have their own, which their help texts list."""

SUCCESS = 0
# Wrong arguments, or a request that cannot succeed as it is.
USAGE = 1
NOT_FOUND = 3
# Not permitted, in conflict with what exists, or over a limit.
REFUSED = 4
# No server answers, or it cannot serve now.
UNREACHABLE = 5
INTERRUPTED = 130
