"""`format("topics")`: the source and the sink of Spark for topics."""
