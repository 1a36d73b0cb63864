"""The options of `create` and `set`: one for each field of a topic's configuration, made from its declaration."""

import argparse
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, inspect

from topics.cli.shared.arguments import duration_argument, size_argument
from topics.model.config import ConfigChange

# Fields whose value is fixed when the topic is created.
FIXED_FIELDS = ("type", "partitions")
NONE_WORDS = ("none", "null")
FLAGS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


def add_config_options(parser: argparse.ArgumentParser, *, creating: bool) -> None:
    group = parser.add_argument_group("configuration")
    for field, kind, description in _fields():
        if not creating and field in FIXED_FIELDS:
            continue
        option: dict[str, Any] = {"default": UNSET, "dest": field, "help": description.replace("%", "%%")}
        if isinstance(kind, inspect.LiteralType):
            option["choices"] = kind.values
        elif isinstance(kind, inspect.BoolType):
            option |= {"type": _flag, "metavar": "yes|no"}
        elif field.endswith("_ms"):
            option |= {"type": duration_argument, "metavar": "DURATION"}
        elif field.endswith("_bytes"):
            option |= {"type": size_argument, "metavar": "SIZE"}
        elif isinstance(kind, inspect.IntType):
            option |= {"type": _number, "metavar": "NUMBER"}
        else:
            option |= {"type": _text, "metavar": "NAME"}
        group.add_argument(f"--{field.replace('_', '-')}", **option)


def given_config(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields that options name."""
    fields = {name: getattr(arguments, name, UNSET) for name in ConfigChange.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not UNSET}


def _fields() -> Iterator[tuple[str, inspect.Type, str]]:
    """Each field with its type (without null and UNSET) and its description."""
    info = inspect.type_info(ConfigChange)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        kinds = list(field.type.types) if isinstance(field.type, inspect.UnionType) else [field.type]
        description = ""
        plain: list[inspect.Type] = []
        while kinds:
            kind = kinds.pop(0)
            if isinstance(kind, inspect.Metadata):
                description = (kind.extra_json_schema or {}).get("description", description)
                kinds.insert(0, kind.type)
            elif isinstance(kind, inspect.UnionType):
                kinds[:0] = kind.types
            elif isinstance(kind, inspect.LiteralType | inspect.BoolType | inspect.IntType | inspect.StrType):
                plain.append(kind)
        yield field.name, plain[0], description


def _flag(text: str) -> bool:
    if text.lower() not in FLAGS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")
    return FLAGS[text.lower()]


def _number(text: str) -> int | None:
    try:
        return None if text.lower() in NONE_WORDS else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _text(text: str) -> str | None:
    return None if text.lower() in NONE_WORDS else text


def changed_fields(before: Any, after: Any) -> dict[str, Any]:
    """The fields of a configuration that differ."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    return {name: value for name, value in new.items() if old.get(name) != value}
