"""SQL: from text to statements, and SELECTs over given rows.

    tokens       text -> tokens, strict about every character
    statements   all statements, as frozen data
    parser       tokens -> one statement, with parameters bound; errors say where and what was expected
    expressions  WHERE and PARTITION BY of routes: checked, and put into the form that runs
    select       SELECT over given tables, in a process of its own with bounds on time and memory
    worker       that process

Nothing here depends on topics: the server executes the statements.
"""
