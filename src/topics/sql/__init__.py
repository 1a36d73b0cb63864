"""SQL: from text to statements, and SELECTs over rows somebody else provides.

    tokens       text -> tokens, strict about every character
    statements   what can be said, as frozen data
    parser       tokens -> one statement, with parameters bound; errors say where and what was expected
    expressions  WHERE and PARTITION BY of routes: checked, and put into the form that runs
    select       SELECT over given tables, in a process of its own with bounds on time and memory
    worker       that process

Nothing here knows topics: what a statement does is the server's business.
"""
