"""Options that several commands take, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

from chat_tui import completing

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
KeyEnv = Annotated[
    str, typer.Option("--api-key-env", help="The variable with the server's key.", metavar="NAME")
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1, mps.", autocompletion=completing.devices)
]
DType = Annotated[
    str | None,
    typer.Option(help="float32, bfloat16 or float16.", autocompletion=completing.dtypes),
]
Assume = Annotated[
    list[str] | None,
    typer.Option(help="Settle what a checkpoint does not say: softcap=20.", metavar="KEY=VALUE"),
]
