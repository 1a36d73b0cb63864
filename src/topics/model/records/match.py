"""The tag predicate of deletes and filters: `["tag","Eq",x]`, `["tag","Glob","p*"]` or a bare string.

Only a trailing `*` of a Glob is special; everything else is literal. Values compare as exact strings. Records
without a tag never match.
"""

from msgspec import Struct

from topics.model.errors import InvalidRequest


class TagMatch(Struct, frozen=True):
    """Equal to `text`, or starting with it when `prefix`."""

    text: str
    prefix: bool

    def matches(self, tag: str | None) -> bool:
        if tag is None:
            return False
        return tag.startswith(self.text) if self.prefix else tag == self.text


def parse_match(value: object) -> TagMatch:
    """Raises InvalidRequest for everything that is not one of the three forms."""
    if isinstance(value, str):
        return TagMatch(value[:-1], True) if value.endswith("*") else TagMatch(value, False)
    if not isinstance(value, list) or len(value) != 3:
        raise InvalidRequest('match must be a string, ["tag","Eq",value] or ["tag","Glob","prefix*"]')
    field, operator, text = value
    if field != "tag":
        raise InvalidRequest('match can only test the field "tag"')
    if not isinstance(text, str):
        raise InvalidRequest("the value of a match must be a string")
    if operator == "Eq":
        return TagMatch(text, False)
    if operator == "Glob":
        if not text.endswith("*"):
            raise InvalidRequest("a Glob must end with *")
        return TagMatch(text[:-1], True)
    raise InvalidRequest('the operator of a match must be "Eq" or "Glob"')
