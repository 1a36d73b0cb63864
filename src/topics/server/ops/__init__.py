"""The process, its settings, logs, metrics, health and connection limits."""
