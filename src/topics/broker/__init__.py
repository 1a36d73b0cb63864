"""The one object the server talks to: it joins the engine's decisions with the storage that keeps them.

Every write goes the same way, by one writer: decide, commit, apply, wake. What is acknowledged has reached the
disk as far as its topic's durability class promises.
"""
