"""A thin HTTP skin around the broker: bytes to requests, routes to handlers, answers and errors to bytes.

The protocol bounds everything a stranger can send; one handler file per resource translates between JSON and
the broker's calls. What a topic is begins one call deeper.
"""
