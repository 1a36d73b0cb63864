"""The client for threads. Most of it is generated from `topics.client.asynchronous`, by `make generate`."""
