"""What a client was made with. Sync and async clients have the same."""

from msgspec import Struct

from topics.client.decoding import LoneSurrogates
from topics.client.transport.address import Address, Credential
from topics.client.transport.retry import RetryPolicy


class ClientSettings(Struct, frozen=True):
    """Where the server is, how it is reached, and how responses are decoded."""

    address: Address
    credential: Credential
    timeout_s: float
    retry: RetryPolicy
    lone_surrogates: LoneSurrogates
