"""`topics serve`: run a server, configured by options, TOPICS_* variables and a file."""

import gc
import os
import sys
import threading

from topics.cli.shared import exit_codes
from topics.cli.shared.arguments import Parser, command_parser

# Options that set a variable for this run.
VARIABLES = {"host": "TOPICS_HOST", "port": "TOPICS_PORT", "data": "TOPICS_DATA_DIR", "config": "TOPICS_CONFIG"}


def build_parser() -> Parser:
    parser = command_parser(
        "serve",
        "Run a server until SIGTERM or Ctrl-C. Options count more than TOPICS_* variables, variables more than the file. "
        "`topics config` prints the effective settings; docs/SETTINGS.md lists all.",
        [
            "topics serve",
            "topics serve --port 5000 --data /var/lib/topics",
            "topics serve --config server.toml --open",
        ],
    )
    parser.add_argument(
        "--port", type=int, help="port to listen on; 0 for a free one (default: TOPICS_PORT, else 4000)"
    )
    parser.add_argument("--host", help="address to listen on (default: TOPICS_HOST, else 127.0.0.1)")
    parser.add_argument(
        "--data", metavar="DIRECTORY", help="data directory (default: TOPICS_DATA_DIR, else ./topics-data)"
    )
    parser.add_argument("--config", metavar="FILE", help="server.toml with settings (default: TOPICS_CONFIG)")
    parser.add_argument("--open", action="store_true", help="open the console in a browser when the server is ready")
    return parser


def run(argv: list[str]) -> int:
    # What is loaded at a start stays; looking for garbage in it takes a tenth of the start. Enabled after recovery.
    gc.disable()
    arguments = build_parser().parse_args(argv)
    for option, variable in VARIABLES.items():
        value = getattr(arguments, option)
        if value is not None:
            os.environ[variable] = str(value)

    from topics.server.ops.process import run as serve
    from topics.server.ops.settings import BadSettings, load_settings

    try:
        settings = load_settings(os.environ)
    except BadSettings as error:
        for problem in error.problems:
            print(f"topics serve: {problem}", file=sys.stderr)
        return exit_codes.USAGE
    # Keys are digests from here on. The operating system still shows the environment that the process was started with.
    for name in ("TOPICS_API_KEYS", "TOPICS_JWT_SECRET"):
        os.environ.pop(name, None)
    return serve(
        settings,
        on_listening=open_when_ready if arguments.open else lambda host, port: None,
        reload=lambda: load_settings(os.environ),
    )


def open_when_ready(host: str, port: int) -> None:
    """Open the console in a browser as soon as the server is ready. Returns at once."""

    def wait_and_open() -> None:
        import webbrowser

        from topics.client import Client
        from topics.model.errors import TopicsError

        url = console_url(host, port)
        try:
            with Client(url) as client:
                client.ready()
            opened = webbrowser.open(url)
        except TopicsError:
            opened = False
        if not opened:
            print(f"topics serve: open {url} in a browser", file=sys.stderr)

    threading.Thread(target=wait_and_open, daemon=True).start()


def console_url(host: str, port: int) -> str:
    """The address of the console of a server on this machine."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}/" if ":" in reachable else f"http://{reachable}:{port}/"
