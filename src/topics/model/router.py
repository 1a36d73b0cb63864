"""Options of a router."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, structs

from topics.model.records.match import TagMatch

Guarantee = Literal["at_least_once", "exactly_once"]


class RouterOptions(Struct, array_like=True, frozen=True):
    """Everything about a router that can be changed: not its source and dest."""

    preserve_node: bool = True
    preserve_tag: bool = True
    filter: TagMatch | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"

    @property
    def exactly_once(self) -> bool:
        return self.guarantee == "exactly_once"


class RouterChange(Struct, frozen=True, kw_only=True):
    """The options that a request names."""

    preserve_node: bool | UnsetType = UNSET
    preserve_tag: bool | UnsetType = UNSET
    filter: TagMatch | None | UnsetType = UNSET
    allow_cycle: bool | UnsetType = UNSET
    guarantee: Guarantee | UnsetType = UNSET

    def applied(self, options: RouterOptions) -> RouterOptions:
        """`options` with what is named; the rest stays."""
        named = {name: value for name, value in structs.asdict(self).items() if value is not UNSET}
        return structs.replace(options, **named)


def filter_tuple(match: TagMatch | None) -> list[str] | None:
    """A filter as the API shows it."""
    if match is None:
        return None
    return ["tag", "Glob", match.text + "*"] if match.prefix else ["tag", "Eq", match.text]
