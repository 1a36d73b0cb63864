"""All modules with handlers. Importing them registers the handlers with their operations."""

from importlib import import_module

MODULES = (
    "auth.login_handler",
    "groups.groups",
    "groups.list",
    "live.connections",
    "live.socket",
    "live.watch",
    "ops.console",
    "ops.description",
    "ops.monitoring.health",
    "ops.monitoring.metrics",
    "ops.monitoring.overview",
    "ops.whoami",
    "queues.dead_letters",
    "queues.jobs",
    "queues.queues",
    "queues.work",
    "sql.statements",
    "tables.archives",
    "tables.changes",
    "tables.pipelines",
    "tables.routes",
    "tables.tables",
    "topics.append",
    "topics.delete",
    "topics.diff",
    "topics.heads",
    "topics.ranges",
    "topics.routers",
    "topics.search",
    "topics.stages",
    "topics.topics",
)


def register() -> None:
    """Import every module of `MODULES`."""
    for module in MODULES:
        import_module(f"topics.server.{module}")
