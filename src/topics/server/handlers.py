"""The modules with handlers, each with the operations whose handlers it registers when it is imported.

A module is imported with the first request for one of its operations, or some seconds after the start (`load_all`). Each takes
0.2 to 6 ms, all together a fifth of the time that a server needs to start.
"""

import asyncio
from importlib import import_module

MODULES = {
    "auth.login_handler": ("log_in",),
    "groups.groups": ("consume", "group_ack", "group_seek", "group_leave"),
    "groups.list": ("list_groups",),
    "live.connections": ("list_connections", "delete_connection"),
    "live.socket": ("get_socket",),
    "live.watch": ("post_watch", "get_watch"),
    "ops.console": ("get_root", "get_console_file"),
    "ops.description": ("get_openapi", "get_docs"),
    "ops.monitoring.health": ("get_health", "get_ready"),
    "ops.monitoring.metrics": ("get_metrics",),
    "ops.monitoring.overview": ("get_overview",),
    "ops.whoami": ("get_whoami",),
    "queues.dead_letters": ("redrive",),
    "queues.jobs": ("list_jobs",),
    "queues.queues": ("claim", "ack", "nack", "extend"),
    "queues.work": ("stream_work",),
    "sql.statements": ("run_sql",),
    "tables.archives": ("put_archive", "get_archive", "delete_archive", "post_progress", "list_archives"),
    "tables.changes": ("post_changes",),
    "tables.pipelines": ("put_pipeline", "stop_pipeline", "get_pipeline", "list_pipelines", "delete_pipeline"),
    "tables.routes": ("get_routes",),
    "tables.tables": ("put_table", "get_table", "delete_table", "list_tables"),
    "topics.append": ("append",),
    "topics.delete": ("delete_records",),
    "topics.diff": ("diff",),
    "topics.heads": ("post_heads",),
    "topics.ranges": ("get_ranges",),
    "topics.routers": ("put_router", "get_router", "list_routers", "delete_router"),
    "topics.search": ("search_topics",),
    "topics.stages": ("post_stage", "delete_stage", "post_renewal", "post_commit", "get_producer"),
    "topics.topics": ("put_topic", "get_topic", "list_topics", "delete_topic"),
}
_MODULE_OF = {operation: module for module, operations in MODULES.items() for operation in operations}


def register(operation: str) -> None:
    """Import the module with the operation's handler."""
    import_module(f"topics.server.{_MODULE_OF[operation]}")


async def load_all(delay_s: float) -> None:
    """After a delay, import the modules that no request has needed yet, one each loop turn.

    An upgrade may replace the files while the server runs; a module of the new version must not get into this process.
    """
    await asyncio.sleep(delay_s)
    for module in MODULES:
        import_module(f"topics.server.{module}")
        await asyncio.sleep(0)
