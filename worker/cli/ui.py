"""`acts ui`: the pages of all runs, live."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import click

from .failures import COMPLETED, Failed
from .options import Common, common_options
from .output import flush, print_either, tell
from .serving import ask_log, log_to_stderr, made_token

if TYPE_CHECKING:
    from acts_celery.broker_config.tokens import AccessToken

_HOST: Final = "127.0.0.1"
_PORT: Final = 5556


@click.command(short_help="Serve the pages of all runs.")
@click.option("--host", default=_HOST, show_default=True, metavar="HOST", help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=_PORT, show_default=True, metavar="N", help="0: a free one."
)
@click.option("--write", is_flag=True, help="The link that is printed may also decide on held calls, and control runs.")
@common_options
def ui(host: str, port: int, write: bool, *, common: Common) -> int:
    """Serve the pages of all runs until Ctrl-C, and print the link that opens them.

    The link has a new token at each start, which may read. ACTS_UI_TOKENS says instead who may enter with which token
    and with which rights; a host that others reach takes that. With --json it prints one line: {"url": …, "host": …,
    "port": …, "pid": …}.

    Exit codes: 0 stopped, 2 bad settings, 3 no server, the port is in use, or the extra `ui` is missing.
    """
    from acts_celery.broker_config.ui import LOCAL_RIGHTS

    try:
        from acts_celery.worker.ui import serving
        from acts_celery.worker.web import listening
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise Failed("the pages take other packages: pip install 'acts-celery[ui]'") from error
    settings = common.settings()
    tokens, rights = settings.read_ui_tokens(), LOCAL_RIGHTS if write else LOCAL_RIGHTS[:1]
    made = made_token(
        settings, tokens, rights, host, write=write, variable="ACTS_UI_TOKENS", example="ann:decide+control:TOKEN"
    )
    ask_log(settings)
    log_to_stderr(settings)
    with listening.listen(host, port) as socket:
        address = settings.ui_url or listening.address_of(socket, host)
        url = serving.link(address, made.text) if made is not None else address

        def announce() -> None:
            place = {"host": host, "port": socket.getsockname()[1], "pid": os.getpid()}
            print_either({"url": url, **place}, [url], as_json=common.json)
            flush()
            _tell_rights(made)

        asyncio.run(serving.serve(socket, host, settings, tokens or ((made,) if made is not None else ()), announce))
    return COMPLETED


def _tell_rights(made: AccessToken | None) -> None:
    if made is None:
        tell("the pages of all runs, for those whom ACTS_UI_TOKENS names; Ctrl-C ends them")
    elif "control" in made.rights:
        tell("the link reads runs, decides on held calls and controls runs; keep it to yourself; Ctrl-C ends it")
    else:
        tell("the link reads runs (--write: it also decides and controls); Ctrl-C ends it")
