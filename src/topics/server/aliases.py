"""Topics that a request may name by their alias: those it only looks at, and those whose archive it is about."""

from topics.broker.broker import Broker
from topics.server.access import caller_of
from topics.server.http import Request


def reached(broker: Broker, request: Request, name: str) -> str:
    """The topic of this name or alias, which the caller must be allowed to touch. 403 comes before 404."""
    topic_name = broker.name_of(name)
    caller_of(request).check_topic(topic_name)
    return topic_name
