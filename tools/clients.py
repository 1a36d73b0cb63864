"""The generated part of the Python clients, from the declarations in `topics.api`.

    client/values.py                     what calls answer, and what they take besides plain values: msgspec Structs
    client/calls.py                      one function for each method: its request as a `Call`
    client/asynchronous/operations.py    the methods of `AsyncClient` that send one request
    client/sync/*.py                     the same as `client/asynchronous/*.py` for `Client`: see `tools/sync.py`

`tools/client_methods.py` lists the names of the methods and what a client does differently.
"""

import json
import re
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from tools.client_methods import METHODS, TYPE_NAMES, Method
from topics.api.common import PageQuery, Response
from topics.api.live import Subscription
from topics.api.operation import ARROW, JSON, Operation
from topics.api.operations import BY_NAME, NOUNS, OPERATIONS
from topics.api.topics import Config
from topics.model.config import ConfigChange, TopicConfig
from topics.model.records.batch import AppendBody, AppendRecord
from topics.model.tables.route import ChangePosition

ROOT = Path(__file__).resolve().parent.parent
CLIENT = "src/topics/client"
GENERATED = "Generated from the declarations in topics.api by `make generate`; do not edit."
# Bases that only share fields: their fields are written out in the types that inherit them.
PLAIN_BASES = (Struct, Response, PageQuery, Subscription, AppendBody, TopicConfig)


def methods() -> list[Method]:
    """All methods, in the order of the API."""
    listed: dict[str, list[Method]] = {}
    for each in METHODS:
        listed.setdefault(each.operation, []).append(each)
    return [
        method
        for operation in OPERATIONS
        if JSON in operation.media and not operation.stream
        for method in listed.get(operation.name, [Method(operation.name, operation.name)])
    ]


# Types as source


def type_name(kind: type) -> str:
    return TYPE_NAMES.get(kind.__name__, kind.__name__)


def type_source(kind: Any, *, parameter: bool = False) -> str:
    """An annotation as source. Parameters take any sequence and mapping."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        names = [type_source(each, parameter=parameter) for each in arguments]
        return " | ".join(dict.fromkeys(names))
    if origin is typing.Literal:
        return f"Literal[{', '.join([json.dumps(each) for each in arguments])}]"
    if origin is list:
        inner = type_source(arguments[0], parameter=parameter)
        return f"{'Sequence' if parameter else 'list'}[{inner}]"
    if origin is dict:
        inner = ", ".join([type_source(each, parameter=parameter) for each in arguments])
        return f"{'Mapping' if parameter else 'dict'}[{inner}]"
    if kind is Any or kind is msgspec.Raw:
        return "Any"
    if kind is type(None):
        return "None"
    if isinstance(kind, type) and issubclass(kind, Struct):
        if parameter and kind is AppendRecord:
            return "Any"
        # Requests take a type of ours or the same as a mapping.
        return f"{type_name(kind)} | Mapping[str, Any]" if parameter else type_name(kind)
    return str(kind.__name__)


def struct_types(kind: Any) -> Iterator[type[Struct]]:
    """The Structs in an annotation, innermost first."""
    for argument in typing.get_args(kind):
        yield from struct_types(argument)
    if isinstance(kind, type) and issubclass(kind, Struct) and kind is not ChangePosition:
        for base in kind.__bases__:
            if base not in PLAIN_BASES:
                yield from struct_types(base)
        for each in typing.get_type_hints(kind).values():
            yield from struct_types(each)
        yield kind


def descriptions(kind: type[Struct]) -> dict[str, str]:
    """What the declaration says about each field."""
    schema = msgspec.json.schema(kind)["$defs"].get(kind.__name__, {})
    found = {}
    names = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    for name, field in schema.get("properties", {}).items():
        text = next((each["description"] for each in (field, *field.get("anyOf", ())) if "description" in each), "")
        if text:
            found[names[name]] = text
    return found


# values.py

VALUES_HEAD = f'''"""What calls answer and take, as values. {GENERATED}

Unknown fields of a response are ignored, so an older client understands a newer server.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal

from msgspec import UNSET, Struct, UnsetType

from topics.model.tables.route import ChangePosition

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    D = TypeVar("D", default=Any)
else:
    from typing import TypeVar

    D = TypeVar("D")

'''
CONFIG_METHODS = '''
    def __getitem__(self, name: str) -> Any:
        """The field of this name, as in a mapping."""
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__struct_fields__)
'''
SECRET_METHODS = """
    def __repr__(self) -> str:
        return f"{type(self).__name__}(access_token='***', expires_in={self.expires_in}, role={self.role!r})"
"""


def values_source() -> str:
    requests, responses = [], []
    for method in methods():
        operation = BY_NAME[method.operation]
        if operation.response is not None and method.arrow != "response":
            responses += list(struct_types(operation.response))
        for field in parameters(method):
            requests += list(struct_types(field.kind))
    requests.append(ConfigChange)
    found: dict[str, tuple[type[Struct], bool]] = {}
    for kind in responses:
        found.setdefault(type_name(kind), (kind, False))
    for kind in requests:
        found.setdefault(type_name(kind), (kind, True))
    found.pop("Performance", None)
    texts = [_struct_source(kind, request=request) for kind, request in found.values()]
    names = "\n".join([f'    "{name}",' for name in sorted([*found, "ChangePosition", "D"])])
    return VALUES_HEAD + f"__all__ = [\n{names}\n]\n\n\n" + "\n\n".join(texts)


def _struct_source(kind: type[Struct], *, request: bool) -> str:
    generic = kind.__name__ in ("Record", "Job")
    base: type[Struct] | None = next((each for each in kind.__bases__ if each not in PLAIN_BASES), None)
    inherited = set(base.__struct_fields__) if base is not None else set()
    fields = [each for each in msgspec.structs.fields(kind) if each.name not in inherited | {"performance"}]
    hints = typing.get_type_hints(kind)
    options = ["Struct" if base is None else type_name(base) + ("[D]" if generic else "")]
    if generic:
        options.append("Generic[D]")
    renamed = {each.name: each.encode_name for each in fields if each.encode_name != each.name}
    if renamed and base is None:
        options.append(f"rename={renamed}")
    defaults = [_default(each) is not msgspec.NODEFAULT for each in fields]
    if base is not None or defaults != sorted(defaults):
        options.append("kw_only=True")
    if request:
        options.append("omit_defaults=True")
    about = descriptions(kind)
    lines = [f"class {type_name(kind)}({', '.join(options)}):"]
    doc = (kind.__doc__ or "").strip()
    if doc.startswith(f"{kind.__name__}("):
        doc = ""
    notes = [f"    {each.name}: {_plain(about[each.name])}" for each in fields if each.name in about]
    body = "\n".join([*re.sub(r"\n\s*", "\n    ", doc or f"The response `{kind.__name__}`.").split("\n")])
    lines.append(f'    """{body}' + ("\n\n" + "\n".join(notes) + "\n    " if notes else "") + '"""\n')
    for each in fields:
        lines.append(f"    {each.name}: {_field_source(each, hints[each.name], request=request, generic=generic)}")
    if kind is Config:
        lines.append(CONFIG_METHODS.rstrip())
    if "access_token" in kind.__struct_fields__:
        lines.append(SECRET_METHODS.rstrip())
    return "\n".join(lines) + "\n"


def _field_source(field: Any, hint: Any, *, request: bool, generic: bool) -> str:
    source = "D" if generic and field.name == "data" else type_source(hint)
    default = _default(field)
    if default is UNSET and not request:
        source, default = source.replace(" | UnsetType", " | None"), None
    if default is msgspec.NODEFAULT:
        return source
    if source == "D":
        return "D = None  # type: ignore[assignment]"
    return f"{source} = {_default_source(default)}"


def _default(field: Any) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _default_source(default: Any) -> str:
    return "UNSET" if default is UNSET else repr(default)


def _plain(text: str) -> str:
    return text.replace("\\", "\\\\")


# Parameters of methods


class Parameter(Struct):
    """A parameter of a method: where its value goes, and how it is written."""

    place: str
    field: str
    name: str
    kind: Any
    default: Any
    server_default: Any
    about: str

    @property
    def required(self) -> bool:
        return self.default is msgspec.NODEFAULT

    @property
    def source(self) -> str:
        kind = type_source(self.kind, parameter=True)
        if self.required:
            return f"{self.name}: {kind}"
        default = self.default
        if default is UNSET and "None" not in kind.split(" | ") and "Any" not in kind.split(" | "):
            # Null means nothing special, so None says that it is not given.
            kind, default = kind.replace("UnsetType", "None"), None
        if isinstance(default, list):
            return f"{self.name}: {kind} = ()"
        if self.none_is_default:
            return f"{self.name}: {kind} | None = None"
        return f"{self.name}: {kind} = {_default_source(default)}"

    @property
    def none_is_default(self) -> bool:
        """Whether None means the server's default: for texts, objects and numbers."""
        default = self.default
        number = type(default) is int and self.field not in ("from_seq", "max")
        return default == "" or isinstance(default, dict) or number

    @property
    def absent(self) -> str:
        """The value that says that it is not given, as source."""
        if self.none_is_default:
            return "None"
        if self.server_default is UNSET:
            kinds = type_source(self.kind, parameter=True).split(" | ")
            return "UNSET" if "None" in kinds or "Any" in kinds else "None"
        return _default_source(self.server_default)

    @property
    def value(self) -> str:
        """The value as it is sent, as source."""
        source = type_source(self.kind, parameter=True)
        if self.field == "records":
            return f"record_bodies({self.name})"
        if re.fullmatch(r"Sequence\[(?:[^\[\]]|\[[^\[\]]*\])*\]", source):
            return f"list({self.name})"
        if re.fullmatch(r"Mapping\[(?:[^\[\]]|\[[^\[\]]*\])*\]", source):
            return f"dict({self.name})"
        return self.name


def parameters(method: Method) -> list[Parameter]:
    """The parameters of a method: path, then required ones, then those that may be positional, then the others."""
    operation = BY_NAME[method.operation]
    found: list[Parameter] = []
    if operation.path_parameter:
        found.append(Parameter("path", operation.path_parameter, operation.path_parameter, str,
                               msgspec.NODEFAULT, msgspec.NODEFAULT, ""))  # fmt: skip
    body = None if method.arrow == "body" else operation.body
    if method.arrow == "body":
        found.append(Parameter("stream", "stream", "stream", bytes, msgspec.NODEFAULT, msgspec.NODEFAULT,
                               "Arrow IPC stream."))  # fmt: skip
    for place, kind in (("body", body), ("query", operation.query)):
        if kind is None:
            continue
        hints, about = typing.get_type_hints(kind), descriptions(kind)
        for each in msgspec.structs.fields(kind):
            if each.name in method.omitted or each.name in method.fixed or each.name in [one.field for one in found]:
                continue
            server_default = _default(each)
            default = method.defaults.get(each.name, server_default)
            hint = hints[each.name]
            if each.name == "topic" and place == "body":
                # One of two fields is required, and the clients send this one.
                hint, default = str, msgspec.NODEFAULT
            name = method.renamed.get(each.name, each.encode_name if each.encode_name.isidentifier() else each.name)
            name = {"from": "from_"}.get(name, name)
            text = re.sub(r" Required, as `topic` or as `topic_id`\.", "", about.get(each.name, ""))
            found.append(Parameter(place, each.encode_name, name, hint, default, server_default, text))
    first = [each for each in found if each.required]
    if operation.query is not None and any([each.place == "query" and each.required for each in first]):
        first.sort(key=lambda each: each.place != "query")
    if operation.name.startswith(("consume", "group_")):
        first.sort(key=lambda each: each.field != "topic")
    by_position = [each for name in method.positional for each in found if each.field == name and not each.required]
    others = [each for each in found if not each.required and each not in by_position]
    return [*first, *by_position, *others]


def _signature(method: Method) -> list[str]:
    found = parameters(method)
    sources = [each.source for each in found if each.required or each.field in method.positional]
    keywords = [each.source for each in found if not each.required and each.field not in method.positional]
    return [*sources, *(["*", *keywords] if keywords else [])]


def _response(method: Method) -> str:
    operation = BY_NAME[method.operation]
    if method.arrow == "response":
        return "bytes"
    if method.response:
        return method.response
    if operation.response is None or operation.name in ("get_metrics", "get_openapi"):
        return "dict[str, Any]"
    return type_name(operation.response)


# calls.py

CALLS_HEAD = f'''"""Calls: the request of each method as a value. {GENERATED}

Both clients run these. No sockets here.
"""

from __future__ import annotations  # keeps the import quick

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from topics.client.call import ARROW, Call, new_key, path, query, record_bodies
from topics.client.values import (
    %s,
)

__all__ = [
    %s,
]
'''


def calls_source() -> str:
    texts = []
    for method in methods():
        texts.append(_call_source(method))
    body = "\n\n".join(texts)
    used = sorted([name for name in _value_names() if re.search(rf"\b{name}\b", body)] + ["RecordIn"])
    names = sorted([*[method.name for method in methods()], "Call", "RecordIn"])
    head = CALLS_HEAD % (",\n    ".join(dict.fromkeys(used)), ",\n    ".join([f'"{name}"' for name in names]))
    return head + "\n\n" + body


def _value_names() -> list[str]:
    return re.findall(r"^class (\w+)", values_source(), re.MULTILINE)


def _call_source(method: Method) -> str:
    operation = BY_NAME[method.operation]
    found = parameters(method)
    response = _response(method)
    lines = [f"def {method.name}({', '.join(_signature(method))}) -> Call[{response}]:"]
    lines.append(f'    """{operation.method} {operation.path}: {_first_lower(operation.summary)}"""')
    address = f'"{operation.path}"'
    if operation.path_parameter:
        before, after = operation.path.split("{" + operation.path_parameter + "}")
        address = f'path("{before}", {operation.path_parameter}, "{after}")' if after else (
            f'path("{before}", {operation.path_parameter})')  # fmt: skip
    queries = [each for each in found if each.place == "query"]
    if queries:
        lines.append(f"    fields: dict[str, Any] = {{{_given(queries)}}}")
        lines += _optional("fields", queries)
        address = f"query({address}, fields)"
    arguments = [f'"{operation.method}"', address, response]
    if method.arrow == "body":
        arguments += ["stream", "content_type=ARROW"]
    elif operation.body is not None:
        bodies = [each for each in found if each.place == "body"]
        fixed = "".join([f', "{name}": {value!r}' for name, value in method.fixed.items()])
        keyed = "idempotency_key" in [each.field for each in bodies]
        if keyed:
            fixed += ', "idempotency_key": idempotency_key or new_key()'
        lines.append(f"    body: dict[str, Any] = {{{(_given(bodies) + fixed).lstrip(', ')}}}")
        lines += _optional("body", [each for each in bodies if each.field != "idempotency_key"])
        arguments.append("body")
    repeatable = method.repeatable
    if repeatable is None and not operation.safe_to_retry:
        keyed = operation.body is not None and "idempotency_key" in operation.body.__struct_fields__
        repeatable = None if keyed and method.arrow != "body" else "False"
    if repeatable is not None:
        arguments.append(f"repeatable={repeatable}")
    wait_s = method.wait_s
    if wait_s is None and "wait_ms" in [each.field for each in found]:
        wait_s = "(wait_ms or 0) / 1000"
    if wait_s is not None:
        arguments.append(f"wait_s={wait_s}")
    if method.arrow == "response":
        arguments.append("accept=ARROW")
    elif JSON in operation.media and len(operation.media) > 1 and operation.media[0] not in (JSON, ARROW):
        arguments.append('accept="application/json"')
    lines.append(f"    return Call({', '.join(arguments)})")
    return "\n".join(lines) + "\n"


def _given(found: list[Parameter]) -> str:
    return ", ".join([f'"{each.field}": {each.value}' for each in found if each.required])


def _optional(target: str, found: list[Parameter]) -> list[str]:
    lines = []
    for each in found:
        if each.required:
            continue
        absent = each.absent
        test = (
            f"{each.name} is not {absent}"
            if absent in ("None", "UNSET", "True", "False")
            else f"{each.name} != {absent}"
        )
        if absent in ("True", "False"):
            test = each.name if absent == "False" else f"not {each.name}"
        elif absent in ("[]", "{}", "''", "0"):
            test = each.name
        lines += [f"    if {test}:", f'        {target}["{each.field}"] = {each.value}']
    return lines


def _first_lower(text: str) -> str:
    return text[:1].lower() + text[1:]


# asynchronous/operations.py

OPERATIONS_HEAD = f'''"""The methods of `AsyncClient` that send one request. {GENERATED}"""

from __future__ import annotations  # keeps the import quick

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import UNSET, UnsetType

from topics.client import calls
from topics.client.call import Call
from topics.client.values import (
    %s,
)

T = TypeVar("T")


class AsyncOperations:
    """One method for each operation of the API. `AsyncClient` sends the requests."""

    async def run(self, call: Call[T]) -> T:
        """Send the call and decode its response."""
        raise NotImplementedError
'''


def operations_source() -> str:
    texts = []
    noun = ""
    for method in methods():
        operation = BY_NAME[method.operation]
        if operation.noun != noun:
            noun = operation.noun
            texts.append(f"    # {NOUNS[noun]}\n")
        texts.append(_method_source(method))
    body = "\n".join(texts)
    used = sorted([name for name in _value_names() if re.search(rf"\b{name}\b", body)])
    return OPERATIONS_HEAD % ",\n    ".join(used) + "\n" + body


def _method_source(method: Method) -> str:
    operation = BY_NAME[method.operation]
    found = parameters(method)
    signature = ", ".join(["self", *_signature(method)])
    lines = [f"    async def {method.name}({signature}) -> {_response(method)}:"]
    lines += ["        " + line if line else "" for line in _docstring(method, operation, found)]
    arguments = [
        each.name if each.required or each.field in method.positional else f"{each.name}={each.name}" for each in found
    ]
    lines.append(f"        return await self.run(calls.{method.name}({', '.join(arguments)}))")
    return "\n".join(lines) + "\n"


ARROW_EXAMPLE = """\
import pyarrow as pa

rows = pa.table({"data": ['{"sku": "MUG"}']})
sink = pa.BufferOutputStream()
with pa.ipc.new_stream(sink, rows.schema) as writer:
    writer.write_table(rows)
"""


def _docstring(method: Method, operation: Operation, found: list[Parameter]) -> list[str]:
    summary = operation.summary
    if method.arrow == "response":
        summary = "The page as an Arrow IPC stream; its cursor fields are in the metadata of the schema."
    elif method.arrow == "body":
        summary = summary.rstrip(".") + ", from an Arrow IPC stream."
    lines = [f'"""{_plain(summary)}', ""]
    if operation.description and not method.arrow and "Accept" not in operation.description:
        lines += [_plain(operation.description), ""]
    about = []
    for each in found:
        if each.field == "records":
            text = "Payloads, or `RecordIn` for records with a tag, node or meta; 1 to 10,000."
        elif each.field == "idempotency_key":
            text = each.about + " Made up if it is not given, so that a retry appends nothing twice."
        else:
            text = each.about
        if each.none_is_default and type(each.default) is int and each.default and "efault" not in text:
            text += f" Default {each.default}."
        if text:
            about.append(f"{each.name}: {_plain(text)}")
    if about:
        lines += [*about, ""]
    example = _example(method, operation, found)
    if method.arrow == "body":
        lines += ["Example:", "", *[f"    {line}" if line else "" for line in ARROW_EXAMPLE.splitlines()]]
        lines += [f'    await client.{method.name}("orders", sink.getvalue().to_pybytes())', ""]
    elif example is not None:
        lines += ["Example:", "", _plain(f"    await client.{method.name}({example})"), ""]
    while not lines[-1]:
        lines.pop()
    if len(lines) == 1:
        return [lines[0] + '"""']
    return [*lines, '"""']


def _example(method: Method, operation: Operation, found: list[Parameter]) -> str | None:
    """The declared example as arguments."""
    if method.example is not None:
        return method.example
    if operation.example is None or method.arrow == "body":
        return None
    address, _, rest = operation.example.path.partition("?")
    values: dict[str, Any] = {}
    if operation.path_parameter:
        pattern = re.escape(operation.path).replace(re.escape("{" + operation.path_parameter + "}"), "(.+)")
        matched = re.fullmatch(pattern, address)
        assert matched is not None, operation.name
        values[operation.path_parameter] = matched[1]
    values |= dict([part.split("=", 1) for part in rest.split("&") if part])
    values |= operation.example.body or {}
    arguments = []
    for each in found:
        if each.field in values:
            value = values[each.field]
            source = _records_example(value) if each.field == "records" else _literal(value, each.kind)
            by_position = each.required or each.field in method.positional
            arguments.append(source if by_position else f"{each.name}={source}")
    return ", ".join(arguments)


def _literal(value: Any, kind: Any) -> str:
    """A JSON value as Python source; keys that are numbers in the API are numbers."""
    if isinstance(value, dict):
        arguments = typing.get_args(kind)
        numbered = bool(arguments) and typing.get_origin(kind) is dict and arguments[0] is int
        inner = arguments[1] if typing.get_origin(kind) is dict else Any
        items = [f"{key if numbered else json.dumps(key)}: {_literal(each, inner)}" for key, each in value.items()]
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join([_literal(each, Any) for each in value])}]"
    if isinstance(value, str):
        return json.dumps(value)
    return repr(value)


def _records_example(records: list[dict[str, Any]]) -> str:
    sources = []
    for each in records:
        more = [f"{name}={_literal(value, Any)}" for name, value in each.items() if name != "data"]
        data = _literal(each["data"], Any)
        sources.append(f"RecordIn({', '.join([data, *more])})" if more else data)
    return f"[{', '.join(sources)}]"


# Files


def formatted(path: str, source: str) -> str:
    """The source with sorted imports and in the project's format."""
    ruff = [sys.executable, "-m", "ruff"]
    checked = subprocess.run(
        [*ruff, "check", "--quiet", "--select=I,F401,UP028", "--fix-only", "--unsafe-fixes", f"--stdin-filename={ROOT / path}", "-"],
        input=source, capture_output=True, text=True, check=True,
    )  # fmt: skip
    done = subprocess.run(
        [*ruff, "format", "--quiet", f"--stdin-filename={ROOT / path}", "-"],
        input=checked.stdout, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def client_files() -> dict[str, str]:
    """The generated files that derive from the API, with their contents."""
    sources = {
        f"{CLIENT}/values.py": values_source(),
        f"{CLIENT}/calls.py": calls_source(),
        f"{CLIENT}/asynchronous/operations.py": operations_source(),
    }
    return {path: formatted(path, source) for path, source in sources.items()}
