"""How TOPICS_API_KEYS is read, and how tokens are recognised."""

import gc
import hmac
from typing import Any

import pytest

from topics.api.operation import ADMIN, ALL, DELETE, READ, WRITE
from topics.server.auth import keys as keys_module
from topics.server.auth.authorization import EVERYONE, Caller
from topics.server.auth.keys import Keyring, parse_keys


def parsed(text: str) -> list[tuple[int, tuple[str, ...]]]:
    keyring, problems = parse_keys(text)
    assert problems == []
    return [(caller.scopes, caller.prefixes) for caller in keyring.callers]


@pytest.mark.parametrize(
    ("entry", "scopes", "prefixes"),
    [
        ("secret", ALL, ()),
        ("secret:", ALL, ()),
        ("secret::", ALL, ()),
        ("secret:read", READ, ()),
        ("secret:r", READ, ()),
        ("secret:w", WRITE, ()),
        ("secret:d", DELETE, ()),
        ("secret:a", ADMIN, ()),
        ("secret:rw", READ | WRITE, ()),
        ("secret:read+write+delete+admin", ALL, ()),
        ("secret:rw+d", READ | WRITE | DELETE, ()),
        ("secret:read:", READ, ()),
        ("secret::tenant42:", ALL, ("tenant42:",)),
        ("secret:read:tenant42:|shared.", READ, ("shared.", "tenant42:")),
        ("secret::a:b:c", ALL, ("a:b:c",)),
        ("  secret:read  ", READ, ()),
    ],
)
def test_entry_is_read_as_it_is_written(entry: str, scopes: int, prefixes: tuple[str, ...]) -> None:
    assert parsed(entry) == [(scopes, prefixes)]


def test_entries_are_separated_by_commas_and_empty_ones_are_none() -> None:
    assert parsed("one, two:read ,,three::x:,") == [(ALL, ()), (READ, ()), (ALL, ("x:",))]


def test_prefix_covered_by_another_one_is_dropped() -> None:
    assert parsed("k::ab|a|b|abc") == [(ALL, ("a", "b"))]


@pytest.mark.parametrize("text", ["", "   "])
def test_no_text_means_no_keys(text: str) -> None:
    assert parsed(text) == []


@pytest.mark.parametrize("blank", ["S3CRET:read write", "S3CRET: :x"])
def test_blank_inside_the_scopes_is_malformed(blank: str) -> None:
    assert "entry 1" in parse_keys(blank)[1][0]


@pytest.mark.parametrize(
    "bad",
    ["S3CRET:reed", "S3CRET:read+", "S3CRET:+read", "S3CRET:READ", "S3CRET:rwd", "S3CRET::a||b", "S3CRET::|", ":read"],
)
def test_malformed_entry_is_named_by_its_position_without_its_secret(bad: str) -> None:
    _, problems = parse_keys(f"good:read,{bad},other")
    assert len(problems) == 1
    assert "entry 2" in problems[0]
    assert "S3CRET" not in problems[0]


def test_secret_with_a_colon_does_not_get_into_the_message() -> None:
    _, problems = parse_keys("half1:half2")
    assert "half" not in problems[0]


def test_every_malformed_entry_is_reported() -> None:
    _, problems = parse_keys("a:x,b:y,c:read,:r")
    assert [problem.split()[1] for problem in problems] == ["1", "2", "4"]


@pytest.mark.parametrize("text", [",", " , ,"])
def test_keys_that_were_meant_but_are_not_there_are_a_problem(text: str) -> None:
    assert parse_keys(text)[1] == ["there is no key in it"]


def test_the_same_key_twice_is_a_problem_only_if_it_allows_different_things() -> None:
    assert parse_keys("k:read,k:r")[1] == []
    assert len(parse_keys("k:read,k:r")[0]) == 1
    assert "entry 2" in parse_keys("k:read,k")[1][0]


def test_token_finds_its_caller_and_no_other_does() -> None:
    keyring, _ = parse_keys("alpha:read,beta:write")
    assert keyring.find(b"alpha") is keyring.callers[0]
    assert keyring.find(b"beta") is keyring.callers[1]
    for wrong in (b"", b"alph", b"alphaa", b"Alpha", b"alpha,beta", b"alpha:read"):
        assert keyring.find(wrong) is None


def test_every_key_is_compared_however_early_the_match_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(kept: bytes, presented: bytes) -> bool:
        compared.append(kept)
        return hmac.compare_digest(kept, presented)

    keyring, _ = parse_keys("one,two,three")
    monkeypatch.setattr(keys_module, "compare_digest", compare)
    for token in (b"one", b"three", b"none"):
        compared.clear()
        keyring.find(token)
        assert len(set(compared)) == 3


def test_no_secret_is_kept_by_the_keyring() -> None:
    keyring, _ = parse_keys("".join(["very", "-secret-", "token"]) + ":read:tenant:")
    held: list[Any] = []
    seen: set[int] = set()
    waiting: list[Any] = [keyring]
    while waiting:
        thing = waiting.pop()
        if id(thing) not in seen and not isinstance(thing, type):
            seen.add(id(thing))
            held.append(thing)
            waiting += gc.get_referents(thing)
    texts = [thing for thing in held if isinstance(thing, str | bytes)]
    assert any(len(text) == 32 for text in texts if isinstance(text, bytes)), "the digest was not found: looked wrongly"
    assert not any("secret" in (text if isinstance(text, str) else text.decode("latin-1")) for text in texts)


def test_prefixes_within_a_prefix_come_in_order_and_do_not_overlap() -> None:
    caller = Caller("k", prefixes=["b", "a:", "a:x", "c1"])
    assert list(caller.prefixes_within("")) == ["a:", "b", "c1"]
    assert list(caller.prefixes_within("a")) == ["a:"]
    assert list(caller.prefixes_within("a:xyz")) == ["a:xyz"]
    assert list(caller.prefixes_within("d")) == []
    assert list(EVERYONE.prefixes_within("d")) == ["d"]


def test_empty_keyring_matches_no_token() -> None:
    assert Keyring().find(b"") is None
