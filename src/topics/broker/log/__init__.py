"""The commit pipeline: commits are written to the log, synced if required, applied and answered."""
