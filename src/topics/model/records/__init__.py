"""Records: the body of an append, pages, and the predicates over tags."""
