"""`topics user add`: a user for server.toml, with its password as an argon2id hash.

    topics user add ada --role dba                      asks for the password, prints what to put into server.toml
    topics user add ada --role dba --file server.toml   adds it to the file

The server reads the file when it starts.
"""

import json
import os
import sys
from getpass import getpass
from pathlib import Path

from topics.cli.shared import exit_codes
from topics.cli.shared.arguments import Parser, Subcommands, command_parser

MIN_PASSWORD_CHARS = 8


def build_parser() -> Parser:
    parser = command_parser(
        "user", "Users of a server, kept in its server.toml.", ["topics user add ada --role dba --file server.toml"]
    )
    add = Subcommands(parser).add(
        "add",
        "add a user with a password",
        ["topics user add ada --role dba", "topics user add ada --role dba --file server.toml"],
        "Hash the password of a user with argon2id and print the entry for server.toml, or add it to the file. "
        "The server reads the file when it starts.",
    )
    add.add_argument("name", metavar="NAME", help="name of the user, without a colon")
    add.add_argument("--role", choices=("user", "service", "dba", "system"), default="user")
    add.add_argument("--file", metavar="PATH", help="server.toml to add the entry to (default: print it)")
    add.add_argument("--password-stdin", action="store_true", help="read the password from standard input")
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        password = _password(from_stdin=arguments.password_stdin)
        entry = _entry(arguments.name, arguments.role, password)
        if arguments.file is None:
            print(entry, end="")
        else:
            _add(Path(arguments.file), arguments.name, entry)
            print(f"user {arguments.name} added to {arguments.file}; restart the server to use it")
    except (OSError, ValueError) as error:
        print(f"topics user: {error}", file=sys.stderr)
        return exit_codes.USAGE
    return 0


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif not sys.stdin.isatty():
        raise ValueError("no terminal to ask on; give the password on standard input, with --password-stdin")
    else:
        password = getpass("Password: ")
        if getpass("Again: ") != password:
            raise ValueError("the two passwords differ")
    if len(password) < MIN_PASSWORD_CHARS:
        raise ValueError(f"a password has at least {MIN_PASSWORD_CHARS} characters")
    return password


def _entry(name: str, role: str, password: str) -> str:
    from topics.server.auth.passwords import hash_password

    if not name or ":" in name or not name.isprintable():
        raise ValueError("a name is not empty and holds no colon")
    # A JSON string is a TOML string as well.
    return f'[[users]]\nname = {json.dumps(name)}\npassword_hash = "{hash_password(password)}"\nrole = "{role}"\n'


def _add(path: Path, name: str, entry: str) -> None:
    """Append the entry, leaving what is there as it is. A file that does not parse with it is not written."""
    import tomllib

    text = path.read_text(encoding="utf-8") if path.exists() else ""
    try:
        users = tomllib.loads(text).get("users", [])
        if isinstance(users, list) and any([isinstance(user, dict) and user.get("name") == name for user in users]):
            raise ValueError(f"{path} has a user {name} already")
        whole = text + ("\n" if text and not text.endswith("\n\n") else "") + entry
        tomllib.loads(whole)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    aside = path.with_name(path.name + ".new")
    # Only the owner may read hashes.
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(whole)
    os.replace(aside, path)
