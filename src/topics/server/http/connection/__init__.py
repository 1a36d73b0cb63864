"""One connection: its states, the fast path, parsing, pipelining, and the responses that stay open."""
