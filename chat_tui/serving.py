"""`chat-tui serve`: the same program in a browser.

    chat-tui serve                              # http://127.0.0.1:8000
    chat-tui serve --port 9000 --continue -n 3  # what it does not know is the chat's

textual-serve (the extra `serve`) runs the chat once for each tab (`chat_tui/served.py`) and carries
its screen to a terminal in the page. Whoever reaches the port acts as the user who started it, so
it is this machine alone unless that is asked for; and a page of somewhere else in the same browser
is answered nothing (`OwnPageOnly`), for any page may open a socket to this machine.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from typer.main import get_command

from engine.errors import EngineError

serve = typer.Typer(add_completion=False)

_START = "from chat_tui.served import main; main()"
_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self'; img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


class ServingError(EngineError):
    """Nothing can be served. `str(error)` is one line."""


@serve.command("serve", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    expose: Annotated[
        bool, typer.Option("--expose", help="Let other machines in, as --host may.")
    ] = False,
) -> None:
    """Show the chat in a browser, one for each tab. All other options are the chat's."""
    options = [*context.args]
    _check(options)
    if not is_loopback(host):
        if not expose:
            raise typer.BadParameter(
                f"{host} lets other machines in, and whoever comes acts as you on this one: reads "
                "and writes files, asks the model. Add --expose if that is wanted."
            )
        print(
            f"chat-tui: whoever reaches {host}:{port} acts as you on this machine; there is no "
            "password.",
            file=sys.stderr,
        )
    try:
        _serve(host, port, options)
    except OSError as error:
        # asyncio's own words are long; those of a name that is not known have no number.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise ServingError(f"{host}:{port} cannot be served: {reason}.") from error


def _check(options: list[str]) -> None:
    """Wrong options are told here, not in each tab."""
    from chat_tui.cli import chat
    from chat_tui.config import CHECKS
    from chat_tui.options import parsed
    from chat_tui.resuming import spelled_out

    alone = typer.Typer(add_completion=False)
    alone.command()(chat)
    given = get_command(alone).make_context("chat-tui serve", spelled_out(options))
    if given.params["prompt"] is not None or given.params["as_json"]:
        raise typer.BadParameter("-p and --json answer once; a browser shows the chat.")
    for name, check in CHECKS.items():
        value = given.params[name.replace("-", "_")] or ()
        for text in [value] if isinstance(value, str) else value:
            parsed(f"--{name}", check, text)


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_ours(host: str, listening: str) -> bool:
    """Whether a page that calls this server `host` is this server's own.

    A name that its owner can point anywhere (DNS rebinding) is not: an address is, and so are the
    names that this machine has.
    """
    name = urlsplit(f"//{host}").hostname or ""
    if name in ("localhost", listening):
        return True
    if is_loopback(listening):
        return is_loopback(name)
    own = socket.gethostname().lower()
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return name in (own, f"{own}.local", socket.getfqdn().lower())


def _serve(host: str, port: int, options: Sequence[str]) -> None:
    """Until Ctrl+C."""
    try:
        from aiohttp import web
        from aiohttp.typedefs import Handler
        from textual_serve.server import Server
    except ImportError as error:
        raise ServingError(
            f"chat-tui serve needs what is not installed here ({error.name}): "
            "pip install 'chat-tui[serve]'."
        ) from error

    page = Path(__file__).with_name("serving.html").read_text("utf-8")

    @web.middleware
    async def own_page_only(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        from_here = origin is None or urlsplit(origin).netloc == request.host
        if not (from_here and is_ours(request.host, host)):
            raise web.HTTPForbidden(text="chat-tui is not served under this name.")
        response: web.StreamResponse = await handler(request)
        if not response.prepared:
            response.headers["X-Content-Type-Options"] = "nosniff"
            response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response

    class Tabs(Server):
        """Serves a page of ours, says little, and leaves no chat behind."""

        def __init__(self) -> None:
            command = shlex.join([sys.executable, "-c", _START, *options])
            shown = f"[{host}]" if ":" in host else host
            super().__init__(command, host, port, public_url=f"http://{shown}:{port}")
            self._tabs: set[asyncio.Task[object]] = set()

        async def _make_app(self) -> web.Application:
            app = await super()._make_app()
            app.middlewares.append(own_page_only)
            return app

        async def on_startup(self, app: web.Application) -> None:
            """It would greet, before it knows whether the port is free."""

        async def on_shutdown(self, app: web.Application) -> None:
            for tab in self._tabs:
                tab.cancel()

        async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
            tab = asyncio.current_task()
            assert tab is not None
            self._tabs.add(tab)
            try:
                return await super().handle_websocket(request)
            finally:
                self._tabs.discard(tab)

        async def handle_index(self, request: web.Request) -> web.Response:
            nonce = secrets.token_urlsafe(16)
            return web.Response(
                text=page.replace("{nonce}", nonce),
                content_type="text/html",
                headers={"Content-Security-Policy": _POLICY.format(nonce=nonce)},
            )

    tabs = Tabs()

    def told(_: str) -> None:
        print(f"chat-tui is at {tabs.public_url} (Ctrl+C ends it)", flush=True)

    web.run_app(tabs._make_app(), host=host, port=port, print=told, access_log=None)
