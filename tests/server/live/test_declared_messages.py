"""The events that the server sends have the fields that the reference shows. The answers of a socket: `test_commands.py`."""

from collections.abc import Iterator

import msgspec
import pytest

from tests.served import server_settings
from topics.api.live_messages import EVENTS
from topics.testing.events import EventStream
from topics.testing.http import Api
from topics.testing.server import running_server


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(server_settings(tmp_path_factory.mktemp("live"))) as found:
        yield found


def test_server_sent_events_have_the_declared_fields(url: str) -> None:
    seen = []
    with Api(url) as api:
        api.put("/v0/topics/events", {"cap_records": 2})
        api.post("/v0/topics/events", {"records": [{"data": number} for number in range(3)]})
        session = api.post("/v0/watch", {"topics": {"events": {"from_seq": 0}}}).json
        with EventStream(api, session["stream_url"]) as stream:
            for step in range(4):
                event = stream.next()
                msgspec.convert(event.data, EVENTS[event.name])
                seen.append(event.name)
                if step == 2:
                    api.delete("/v0/topics/events")
    assert seen == ["tombstone", "record", "caught-up", "topic-deleted"]
