"""All operations of the API."""

from topics.api import groups, live, ops, queues, routers, sql, stages, topics
from topics.api.tables import archives, pipelines, tables

# In the order of the reference.
NOUNS = {
    "topics": "Topics and records",
    "queues": "Queues",
    "live": "Live streams",
    "groups": "Consumer groups",
    "sql": "SQL",
    "routers": "Routers",
    "stages": "Stages and commits",
    "tables": "Tables and routes",
    "archives": "Archives",
    "pipelines": "Pipelines",
    "server": "The server",
}
OPERATIONS = (
    *topics.OPERATIONS,
    *queues.OPERATIONS,
    *live.OPERATIONS,
    *groups.OPERATIONS,
    *sql.OPERATIONS,
    *routers.OPERATIONS,
    *stages.OPERATIONS,
    *tables.OPERATIONS,
    *archives.OPERATIONS,
    *pipelines.OPERATIONS,
    *ops.OPERATIONS,
)
BY_NAME = {operation.name: operation for operation in OPERATIONS}
