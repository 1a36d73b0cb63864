"""Commands about what moves records: routers, tables with their changes, archives, and pipelines on Spark."""
