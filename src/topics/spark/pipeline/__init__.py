"""The pipeline: one Spark driver that runs the route, archive and Delta jobs of a server."""
