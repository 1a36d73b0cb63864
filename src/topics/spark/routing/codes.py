"""Numbers in the column `route` of a routing query.

1 ..                     the route with this number, counted from 1
-1 ..                    condition -n could not be evaluated
-1 - MISSING ..          the same, because a column that it names is not in the row
TRUNCATE, UNREADABLE, LOST    an event that no route is for
"""

MISSING = 1_000_000
TRUNCATE = -2_000_001
UNREADABLE = -2_000_002
LOST = -2_000_003
EVENT_KINDS = {TRUNCATE: "truncates", UNREADABLE: "unreadable", LOST: "lost"}
