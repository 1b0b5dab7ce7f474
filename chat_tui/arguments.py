"""Values as they are typed behind a command or an option, and as they are shown.

A parser takes the text and raises `BadValueError`, which says what it takes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from chat_tui.labels import show_system
from chat_tui.model import short_names
from chat_tui.parts import Wanted, wanted
from chat_tui.settings import MAX_SAMPLES, Own, OwnField, Setup, show_top_k


class BadValueError(ValueError):
    """A command's argument is not what it takes. `str(error)` says what it takes."""


def samples(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_SAMPLES:
        raise BadValueError(f"takes a whole number from 1 to {MAX_SAMPLES}")
    return int(text)


def number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:9]) == 0:
        raise BadValueError("takes a whole number from 1")
    return int(text)


def _parts(text: str) -> list[str]:
    return re.split(r"[,\s]+", text.strip(" ,"))


def temperatures(text: str) -> tuple[float, ...]:
    values: list[float] = []
    for part in _parts(text):
        if not re.fullmatch(r"\d{0,3}(\.\d{0,6})?", part) or part in ("", "."):
            raise BadValueError("takes one number, or one per answer: 0.7 or 0.2,0.7,1.0")
        values.append(float(part))
    if max(values) > 10 or len(values) > MAX_SAMPLES:
        raise BadValueError(f"takes up to {MAX_SAMPLES} numbers from 0 (greedy) to 10")
    return tuple(values)


def top_ks(text: str) -> tuple[int | None, ...]:
    values = tuple(top_k(part) for part in _parts(text))
    if len(values) > MAX_SAMPLES:
        raise BadValueError(f"takes up to {MAX_SAMPLES} numbers")
    return values


def top_k(text: str) -> int | None:
    if text.lower() in ("all", "off", "none", "0"):
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) < 10**8:
        raise BadValueError("takes a whole number from 1, or all")
    return int(text)


def assumption(text: str) -> tuple[str, object]:
    """What the user settles for a checkpoint that does not say it."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise BadValueError("takes KEY=VALUE, as in softcap=20")
    try:
        return key, float(value)
    except ValueError:
        return key, value


def seed(text: str) -> int | None:
    if text.lower() == "random":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) >= 2**63:
        raise BadValueError("takes a whole number from 0 to 2**63 - 1, or random")
    return int(text)


def switch(text: str) -> bool:
    try:
        return {"on": True, "off": False}[text.lower()]
    except KeyError:
        raise BadValueError("takes on or off") from None


def system(text: str) -> str | None:
    return None if text.lower() == "default" else text


def systems(text: str) -> tuple[str | None, ...]:
    return (system(text),)


def models(text: str) -> tuple[str, ...]:
    """One or more names, apart by spaces; a name with a space in it stands in quotes."""
    if os.path.exists(os.path.expanduser(text)):
        return (text,)
    names = tuple(quoted or plain for quoted, plain in re.findall(r'"([^"]+)"|([^\s"]+)', text))
    if not names:
        raise BadValueError("takes the name of a model, or several")
    return names


def own(text: str) -> Own:
    """What is behind `/pane`."""
    number, _, rest = text.partition(" ")
    name, _, argument = rest.strip().partition(" ")
    name, argument = name.lower(), argument.strip()
    if not number.isascii() or not number.isdigit() or int(number[:9]) == 0 or not name:
        raise BadValueError(f"takes a pane and what it is to have: {_PANE}")
    pane = int(number[:9]) - 1
    if name == "default" and not argument:
        return Own(pane, "")
    if name not in _OWN or not argument:
        raise BadValueError(f"takes {', '.join(_OWN)} and a value, or default: {_PANE}")
    field, parse = _OWN[name]
    try:
        return Own(pane, field, parse(argument))
    except BadValueError as error:
        raise BadValueError(f"{number} {name} {error}") from None


def temperature(text: str) -> float:
    try:
        (value,) = temperatures(text)
    except ValueError:
        raise BadValueError("takes one number from 0 (greedy) to 10") from None
    return value


_PANE = "/pane 2 temp 1.1"
_OWN: dict[str, tuple[OwnField, Callable[[str], object]]] = {
    "temp": ("temperature", temperature),
    "topk": ("top_k", top_k),
    "model": ("model", str),
    "system": ("system", system),
}
"""What a pane may have of its own, as it is typed."""
PANE_FIELDS = (*(f"{name} " for name in _OWN), "default")
"""What can stand behind the number of a pane."""


def server(text: str) -> str | None:
    return None if text.lower() == "off" else text


def part(text: str) -> Wanted:
    found = wanted(text)
    if found is None:
        raise BadValueError("takes an answer's number, and code, code N, tokens or json")
    return found


def as_it_is(text: str) -> str:
    return text


def show_temperatures(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


def show_panes(setups: Sequence[Setup]) -> str:
    """What all panes have, then what each has for itself."""
    names = short_names(setup.model.stand_in for setup in setups)
    told = [
        (
            names[setup.model.stand_in],
            show_system(setup.system),
            f"T {setup.temperature:g}",
            show_top_k(setup.top_k),
        )
        for setup in setups
    ]
    same = [len(set(column)) == 1 for column in zip(*told, strict=True)]
    common = " · ".join(part for part, alike in zip(told[0], same, strict=True) if alike)
    if all(same):
        return f"all have {common}"
    each = [
        f"{place} {' · '.join(part for part, alike in zip(parts, same, strict=True) if not alike)}"
        for place, parts in enumerate(told, 1)
    ]
    return "\n".join([*each, *([f"all {common}"] if common else [])])


def show_top_ks(values: Sequence[int | None]) -> str:
    return ",".join("all" if value is None else str(value) for value in values)
