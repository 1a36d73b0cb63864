"""The client for asyncio. `topics.client.sync` is generated from it."""
