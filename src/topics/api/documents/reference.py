"""The API reference: docs/api.md and the page at /docs, made from the declarations."""

import json
from collections.abc import Iterable
from html import escape
from typing import Any

import msgspec

from topics.api.documents.openapi import PATH_PARAMETERS, query_schemas, scope_names
from topics.api.errors import STATUS_OF
from topics.api.live import COMMANDS, ErrorMessage
from topics.api.operation import ANY_KEY, ARROW, COMMON_ERRORS, JSON, PROBE, PUBLIC, Command, Name, Operation, Rule
from topics.api.operations import NOUNS, OPERATIONS
from topics.api.sql import STATEMENTS

# A field of a table: its name, type, whether it is required, its default, what it is.
Row = tuple[str, str, str]

INTRODUCTION = (
    "Every request and response body is JSON in UTF-8 unless stated otherwise. A successful response is the data itself with a "
    '`performance` object; an error is `{"error": {"code", "message", "detail"}}`. Send a key or the token of a login as '
    "`Authorization: Bearer <key>`. Unknown fields and query parameters are ignored unless stated otherwise. Every path under "
    "`/api` is served under `/v1/api` too. An operation lists the errors of its own; every operation may also answer "
)


def markdown() -> str:
    """The reference as Markdown."""
    lines = [
        "# API reference",
        "",
        "Generated from `topics.api` by `make generate`; do not edit. The same reference is served at `/docs`, and as OpenAPI 3.1 at",
        "`/openapi.json`. Choices that the contract leaves open are explained in [http.md](http.md).",
        "",
        _introduction(),
        "",
    ]
    for noun, title in NOUNS.items():
        lines += [f"## {title}", ""]
        for operation in _of(noun):
            lines += _markdown_operation(operation)
    lines += [
        "## WebSocket commands",
        "",
        "Messages to `/v0/ws`, by `op`.",
        "",
        *_markdown_commands(COMMANDS, "op"),
        "",
        *_markdown_messages(),
    ]
    lines += [
        "## SQL statements",
        "",
        "What each statement requires.",
        "",
        *_markdown_commands(STATEMENTS, "statement"),
        "",
    ]
    return "\n".join(lines).rstrip() + "\n"


def html() -> str:
    """The reference as one page without external assets."""
    parts = []
    navigation = []
    for noun, title in NOUNS.items():
        navigation.append(f'<a href="#{noun}">{escape(title)}</a>')
        parts.append(f'<h2 id="{noun}">{escape(title)}</h2>')
        parts += [_html_operation(operation) for operation in _of(noun)]
    for title, key, commands in (("WebSocket commands", "op", COMMANDS), ("SQL statements", "statement", STATEMENTS)):
        anchor = title.partition(" ")[0].lower() + "-commands"
        navigation.append(f'<a href="#{anchor}">{title}</a>')
        rows = [(name, _needs_of(each), each.operation or "") for name, each in commands.items()]
        parts.append(f'<h2 id="{anchor}">{title}</h2>' + _html_table((key, "requires", "operation"), rows))
        if commands is COMMANDS:
            parts += [
                f"<p>{_html_text(name)}</p>"
                + _html_table(("field", "type", ""), [(f"`{field}`", kind, text) for field, kind, text in fields])
                for name, fields in _message_tables()
            ]
    return _PAGE.format(
        style=_STYLE,
        script=_SCRIPT,
        introduction=_html_text(_introduction()),
        navigation="\n".join(navigation),
        content="\n".join(parts),
    )


def _introduction() -> str:
    return INTRODUCTION + _errors_text(COMMON_ERRORS) + "."


def _of(noun: str) -> list[Operation]:
    return [operation for operation in OPERATIONS if operation.noun == noun]


# Facts of an operation


def scope_text(scope: int) -> str:
    if scope == PUBLIC:
        return "no credential"
    if scope == PROBE:
        return "no credential, unless `TOPICS_PROBE_AUTH` is set"
    if scope == ANY_KEY:
        return "any credential"
    names = scope_names(scope)
    if "consume" in names:
        return "`read` and `write`, or the role's permission to consume"
    return " and ".join([f"`{name}`" for name in names])


def _needs_of(command: Command) -> str:
    names = ", ".join([_name_text(name) for name in command.rule.names])
    return _scopes(command.rule) + (f"; names: {names}" if names else "")


def _scopes(rule: Rule) -> str:
    more = [
        f"; with `{each.field}` also {scope_text(each.scope)}"
        + (" if it creates the topic" if each.on_creation else "")
        for each in rule.field_scopes
    ]
    return scope_text(rule.scope) + "".join(more)


def _name_text(name: Name) -> str:
    return f"`{name.field.replace('|', '` or `')}`"


def _facts(operation: Operation) -> list[tuple[str, str]]:
    facts = [("Requires", _scopes(operation.rule))]
    if operation.names:
        facts.append(
            ("Names that the key must be allowed to touch", ", ".join([_name_text(name) for name in operation.names]))
        )
    retry = "yes" if operation.safe_to_retry else "no"
    facts.append(("Safe to retry", f"{retry}. {operation.retry_note}".strip() if operation.retry_note else retry))
    if operation.arrow_body:
        facts.append(("Body", f"JSON, or an Arrow stream (`{ARROW}`)"))
    if operation.media != (JSON,):
        facts.append(("Response", " or ".join([f"`{media}`" for media in operation.media]) or "a WebSocket"))
    if len(operation.paths) > 1:
        facts.append(("Also at", ", ".join([f"`{path}`" for path in operation.paths[1:]])))
    if operation.errors:
        facts.append(("Errors", _errors_text(operation.errors)))
    return facts


def _errors_text(codes: Iterable[str]) -> str:
    found: dict[int, list[str]] = {}
    for code in sorted(codes, key=lambda code: STATUS_OF[code]):
        found.setdefault(STATUS_OF[code], []).append(f"`{code}`")
    return "; ".join([f"{status} {', '.join(each)}" for status, each in found.items()])


def _tables(operation: Operation) -> list[tuple[str, list[Row]]]:
    """The parameters, the body and the response, with the types that they use."""
    tables: list[tuple[str, list[Row]]] = []
    parameters: list[Row] = []
    if operation.path_parameter:
        parameters.append((operation.path_parameter, "path", PATH_PARAMETERS[operation.path_parameter][1]))
    for name, schema in query_schemas(operation).items():
        required = ", required" if schema["required"] else ""
        parameters.append((name, f"query, {_type_text(schema)}{required}", _field_text(schema)))
    parameters += [(header.name, "header", header.description) for header in operation.headers]
    if parameters:
        tables.append(("Parameters", parameters))
    for title, kind in (("Body", operation.body), ("Response", operation.response)):
        if kind is not None:
            tables += _type_tables(title, kind)
    return tables


def _message_tables() -> list[tuple[str, list[Row]]]:
    """The messages of a WebSocket, with the types that they use: each command, its answer, and the error."""
    tables: dict[str, list[Row]] = {}
    for op, command in COMMANDS.items():
        for title, kind, name in (
            ("Message", command.request, f"`{op}`"),
            ("Answer", command.response, f"Answer to `{op}`"),
        ):
            for table, rows in _type_tables(title, kind) if kind is not None else ():
                tables.setdefault(name if table == title else table.partition(": ")[2], rows)
    tables.update([("Answer to a command that is refused", _type_tables("Answer", ErrorMessage)[0][1])])
    return list(tables.items())


def _type_tables(title: str, kind: type) -> list[tuple[str, list[Row]]]:
    rows = type_rows(kind, is_request=title in ("Body", "Message"))
    return [(f"{title}: `{name}`" if name else title, fields) for name, fields in rows]


def type_rows(kind: type, *, is_request: bool) -> list[tuple[str, list[Row]]]:
    """The fields of a type, without a name, and then those of the types that it uses, by name."""
    references, schemas = msgspec.json.schema_components([kind], ref_template="{name}")
    first = references[0].get("$ref", "")
    ordered = [first, *[name for name in schemas if name != first]] if first else list(schemas)
    tables = []
    for name in ordered:
        if name == "Performance":
            continue
        required = schemas[name].get("required", ()) if is_request else ()
        rows = [
            (
                field,
                _type_text(schema) + (", required" if field in required else ""),
                _field_text(schema, defaults=is_request),
            )
            for field, schema in schemas[name].get("properties", {}).items()
            if field != "performance"
        ]
        tables.append(("" if name == first else name, rows))
    return tables


def _type_text(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"])
    if "enum" in schema:
        return " or ".join([json.dumps(value) for value in schema["enum"]])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys([_type_text(each) for each in schema["anyOf"]]))
    kind = schema.get("type", "any JSON")
    if kind == "array":
        return f"list of {_type_text(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type_text(schema['additionalProperties'])}"
    return str(kind)


def _field_text(schema: dict[str, Any], *, defaults: bool = True) -> str:
    described = [schema, *schema.get("anyOf", ())]
    text = next((each["description"] for each in described if "description" in each), "")
    default = schema.get("default") if defaults else None
    if default not in (None, "", [], {}) and "efault" not in text:
        text = f"{text} Default {json.dumps(default)}.".strip()
    return str(text)


# Markdown


def _markdown_operation(operation: Operation) -> list[str]:
    lines = [f"### {operation.method} {operation.path}", "", operation.summary, ""]
    if operation.description:
        lines += [operation.description, ""]
    lines += [f"- {name}: {text}" for name, text in _facts(operation)]
    lines.append("")
    for title, rows in _tables(operation):
        lines += _markdown_fields(title, rows)
    lines += ["```", *_example(operation), "```", ""]
    return lines


def _markdown_fields(title: str, rows: list[Row]) -> list[str]:
    lines = [f"{title}:", "", "| field | type | |", "|---|---|---|"]
    return [*lines, *[f"| `{name}` | {_cell(kind)} | {_cell(text)} |" for name, kind, text in rows], ""]


def _markdown_messages() -> list[str]:
    return [line for title, rows in _message_tables() for line in _markdown_fields(title, rows)]


def _markdown_commands(commands: dict[str, Command], key: str) -> list[str]:
    lines = [f"| {key} | requires | operation |", "|---|---|---|"]
    return lines + [
        f"| `{name}` | {_needs_of(each)} | {f'`{each.operation}`' if each.operation else ''} |"
        for name, each in commands.items()
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _example(operation: Operation) -> list[str]:
    example = operation.example
    if example is None:
        return []
    body = f" {json.dumps(example.body)}" if example.body is not None else ""
    lines = [f"{operation.method} {example.path}{body}"]
    if example.response is not None:
        lines.append(f"{operation.statuses[-1]} {json.dumps(example.response)}")
    return lines


# HTML


def _html_operation(operation: Operation) -> str:
    facts = "".join([f"<li>{escape(name)}: {_html_text(text)}</li>" for name, text in _facts(operation)])
    tables = "".join(
        [
            f"<h4>{_html_text(title)}</h4>"
            + _html_table(("field", "type", ""), [(f"`{name}`", kind, text) for name, kind, text in rows])
            for title, rows in _tables(operation)
        ]
    )
    about = f"<p>{_html_text(operation.description)}</p>" if operation.description else ""
    example = escape("\n".join(_example(operation)))
    return (
        f'<details class="operation" id="{operation.name}"><summary><b class="{operation.method}">{operation.method}</b> '
        f"<code>{escape(operation.path)}</code> <span>{_html_text(operation.summary)}</span></summary>"
        f"{about}<ul>{facts}</ul>{tables}<pre>{example}</pre></details>"
    )


def _html_table(head: tuple[str, ...], rows: list[Row]) -> str:
    heads = "".join([f"<th>{escape(each)}</th>" for each in head])
    body = "".join(["<tr>" + "".join([f"<td>{_html_text(cell)}</td>" for cell in row]) + "</tr>" for row in rows])
    return f"<table><tr>{heads}</tr>{body}</table>"


def _html_text(text: str) -> str:
    """Text with `code` in backticks."""
    pieces = escape(text).split("`")
    return "".join([f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces)])


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #8888; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1rem; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1rem; margin: 1rem 0; }
input { font: inherit; padding: .4rem .6rem; width: 100%; box-sizing: border-box; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; } summary b { display: inline-block; min-width: 4.5rem; }
summary span { opacity: .75; } .GET { color: #2a7de1; } .POST { color: #2e9a4b; } .PUT { color: #b7791f; } .DELETE { color: #d64545; }
table { border-collapse: collapse; width: 100%; margin: .4rem 0; }
th, td { border-top: 1px solid var(--line); padding: .25rem .5rem; text-align: left; vertical-align: top; }
pre { overflow-x: auto; white-space: pre-wrap; background: #8881; padding: .6rem; border-radius: 6px; }
"""
_SCRIPT = """
const box = document.querySelector('input'), operations = [...document.querySelectorAll('.operation')];
box.addEventListener('input', () => {
  const words = box.value.toLowerCase().split(/\\s+/);
  for (const each of operations) {
    const text = each.textContent.toLowerCase();
    each.hidden = !words.every(word => text.includes(word));
  }
});
function open() { const chosen = document.getElementById(location.hash.slice(1)); if (chosen && chosen.open === false) chosen.open = true; }
addEventListener('hashchange', open); open();
"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>topics API</title>
<link rel="icon" href="data:,"><style>{style}</style></head>
<body><h1>topics API</h1><p>{introduction}</p>
<p>Machine-readable: <a href="/openapi.json">/openapi.json</a> (OpenAPI 3.1).</p>
<input type="search" placeholder="Search operations, fields, errors" aria-label="Search">
<nav>{navigation}</nav>
<main>{content}</main><script>{script}</script></body></html>
"""
