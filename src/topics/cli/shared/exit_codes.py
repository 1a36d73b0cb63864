"""Exit codes of all commands."""

SUCCESS = 0
# Wrong arguments, or a request that cannot succeed as it is.
USAGE = 1
NOT_FOUND = 3
# Not permitted, in conflict with what exists, or over a limit.
REFUSED = 4
# No server answers, or it cannot serve now; a data directory cannot be read.
UNREACHABLE = 5
# `check`: a server would cut off a torn tail. `repair --dry-run`: a repair would give up records. `conformance`: a check failed.
FINDINGS = 10
# `check`: something is damaged. `repair`: it cannot be repaired.
DAMAGED = 11
INTERRUPTED = 130
