"""Lag of a consumer group over all its partitions."""

from topics.broker.broker import Broker, Topic
from topics.broker.groups.groups import group_lag
from topics.engine.groups.group import NO_LAG, Group, Lag


def total_lag(broker: Broker, topic: Topic, group: Group) -> Lag:
    """The records of all partitions, and the seconds of the one that is farthest behind."""
    lags = [group_lag(broker, topic.partitions[number], position) for number, position in group.positions.items()]
    return Lag(sum([each.records for each in lags]), max([each.seconds for each in lags], default=NO_LAG.seconds))
