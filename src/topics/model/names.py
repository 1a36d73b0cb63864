"""What a topic or a router may be called. Names are byte-exact, case-sensitive, and never become file names."""

import re

from topics.model.errors import InvalidRequest

TOPIC_PATTERN = "[A-Za-z0-9][A-Za-z0-9._:-]{0,254}"
ROUTER_PATTERN = "[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}"
_TOPIC = re.compile(TOPIC_PATTERN)
_ROUTER = re.compile(ROUTER_PATTERN)


def check_topic_name(name: str, what: str = "topic") -> str:
    if _TOPIC.fullmatch(name) is None:
        raise InvalidRequest(f"invalid {what} name: 1 to 255 of A-Z a-z 0-9 . _ : -, starting with a letter or digit")
    return name


def check_router_name(name: str) -> str:
    if _ROUTER.fullmatch(name) is None:
        raise InvalidRequest("invalid router name: 1 to 255 of A-Z a-z 0-9 . _ : - >, starting with a letter or digit")
    return name
