"""The `[keys]` table of the config file: which keys it gives to which actions.

    keys, troubles = read_keys({"chat.tree": "ctrl+b", "answers.zoom": ["z", "f2"]})

Actions are those of `chat_tui/keys.py`, keys are named as Textual names them (`ctrl+g`, `f2`,
`pageup`, `?`). What cannot be is told in a line each: an action or a key that there is not, a key
that already means something else in the same place, a letter where text is typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from textual.binding import Binding
from textual.keys import REPLACED_KEYS, _character_to_key, key_to_character
from textual.keys import Keys as Known

from chat_tui.config import KEYS, Config, ConfigError, nearest
from chat_tui.keys import BINDINGS, PLACES, Keys, name_of

_MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")
_ALSO = {
    "esc": "escape",
    "return": "enter",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "del": "delete",
    "ins": "insert",
}
"""Other names that keyboards have for keys."""
_TYPED_IN = ("chat.", "prompt.")
"""Actions that are asked for where text is typed."""
_CHAT_ALONE = ("chat.focus-next", "chat.focus-previous")
"""Actions of the chat that leave their keys to the screens that lie over it."""
_OVER = ("tokens", "alternatives", "tree", "sessions")
"""Areas of those screens."""
_ELSEWHERE = ("rating",)
"""Areas of programs of their own, where the chat's keys mean nothing."""


def keys_of(config: Config) -> Keys:
    """The keys that the file asks for.

    Raises:
        ConfigError: the first thing that is wrong with them.
    """
    keys, troubles = read_keys(config.keys)
    if troubles:
        raise ConfigError(f"{config.path}: {KEYS}.{troubles[0]}")
    return keys


def read_keys(table: Mapping[str, object]) -> tuple[Keys, list[str]]:
    """The keys after this table, as far as it can be followed; and what is wrong with it."""
    changed: dict[str, str] = {}
    troubles: list[str] = []
    for name, value in table.items():
        action = name.replace("_", "-")
        try:
            if action not in BINDINGS:
                raise ValueError(f"there is no such action{nearest(action, BINDINGS)}")
            given = value if isinstance(value, list) else [value]
            changed[action] = ",".join(_usable(action, key) for key in given)
            if not given:
                raise ValueError("takes a key, or a list of keys.")
        except ValueError as error:
            troubles.append(f"{name}: {error}")
    return Keys(changed), [*troubles, *dict.fromkeys(_clashes(changed))]


def key_of(text: str) -> str:
    """A key as Textual reports it: modifiers in order, a character by its name.

    Raises:
        ValueError: there is no such key.
    """
    *modifiers, last = re.split(r"\+(?=.)", text.strip())
    modifiers = sorted({modifier.lower() for modifier in modifiers})
    for modifier in modifiers:
        if modifier not in _MODIFIERS:
            near = nearest(modifier, _MODIFIERS)
            raise ValueError(f"there is no {modifier} to hold, as in {text}{near}")
    if len(last) == 1:
        if modifiers == ["shift"] and last.isalpha():
            return last.upper()
        last = _character_to_key(last.lower() if "ctrl" in modifiers else last)
    else:
        last = _ALSO.get(last.lower(), last.lower())
        if last not in _named() and not _character(last):
            raise ValueError(f"there is no key {text!r}{nearest(last, _named())}")
    return "+".join([*modifiers, last])


def _character(key: str) -> str:
    """What a key types; empty for those that type nothing."""
    return key_to_character(REPLACED_KEYS.get(key, key)) or ""


@cache
def _named() -> frozenset[str]:
    keys = (key.value for key in Known if not key.value.startswith("<"))
    names = (key.rpartition("+")[2] for key in keys)
    return frozenset(name for name in names if len(name) > 1)


def _usable(action: str, text: object) -> str:
    if not isinstance(text, str):
        raise ValueError(f"takes a key, or a list of keys, not {text!r}.")
    key = key_of(text)
    typed = _character(key)
    if action.startswith(_TYPED_IN) and typed and typed.isprintable():
        raise ValueError(f"{text} is typed; add ctrl or alt, or take another.")
    return key


def _clashes(changed: Mapping[str, str]) -> Iterator[str]:
    """Keys that mean two things in one area. In the table none does: the user brought them in."""
    for area in dict.fromkeys(place.area for place in PLACES):
        taken: dict[str, str] = {}
        for binding in _in_effect(area):
            action = binding.id or ""
            for key in (changed.get(action) or binding.key).split(","):
                other = taken.setdefault(key, action)
                if other != action:
                    mine, theirs = (action, other) if action in changed else (other, action)
                    yield f"{mine}: {name_of(key)} is {theirs} already."


def _in_effect(area: str) -> Iterator[Binding]:
    for place in PLACES:
        for binding in place.bindings:
            # These keys of the chat come before all others.
            first = place.area == "chat" and binding.priority and area not in _ELSEWHERE
            if place.area == area or (
                first and (area not in _OVER or binding.id not in _CHAT_ALONE)
            ):
                yield binding
