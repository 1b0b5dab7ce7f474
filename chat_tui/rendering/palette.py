"""How text looks in a theme: one frozen table of Rich styles.

`Palette.of(app)` reads the theme's own variables (as the style sheet does), so that every Textual
theme works, and caches by what it read. Styles carry no background unless it means something; the
widget's own shows through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError

_READ = (
    "background",
    "foreground",
    "surface",
    "panel",
    "primary",
    "accent",
    "success",
    "warning",
    "error",
    "text-primary",
    "text-accent",
    "text-success",
    "text-warning",
    "text-error",
    "primary-muted",
)


@dataclass(frozen=True)
class Palette:
    """Styles by role."""

    text: Style
    muted: Style
    faint: Style
    strong: Style
    emphasis: Style
    strike: Style
    code: Style
    code_block: Style
    code_label: Style
    link: Style
    heading: tuple[Style, Style, Style]
    bullet: Style
    quote: Style
    quote_bar: Style
    rule: Style
    table_head: Style
    forced: Style
    chip: Style
    chip_arrow: Style
    chip_result: Style
    chip_failed: Style
    user: Style
    user_bar: Style
    running: Style
    success: Style
    warning: Style
    error: Style
    accent: Style

    @classmethod
    def of(cls, app: App[object]) -> Palette:
        """The palette of the app's theme."""
        variables = app.theme_variables
        return _palette(tuple(variables.get(name, "") for name in _READ))


@lru_cache(maxsize=8)
def _palette(values: tuple[str, ...]) -> Palette:
    colors = _colors(dict(zip(_READ, values, strict=True)))
    background = colors["background"]
    foreground = colors["foreground"]

    def ink(color: Color, strength: float = 1.0, attributes: str = "") -> Style:
        blended = background.blend(color, strength)
        return Style.parse(attributes) + Style(color=blended.rich_color)

    def on(base: Color) -> Style:
        return Style(bgcolor=base.rich_color)

    chip = background.blend(colors["primary"], 0.22)
    code = background.blend(foreground, 0.07)
    text = ink(foreground)
    muted = ink(foreground, 0.6)
    return Palette(
        text=text,
        muted=muted,
        faint=ink(foreground, 0.35),
        strong=Style(bold=True),
        emphasis=Style(italic=True),
        strike=Style(strike=True),
        code=ink(colors["text-accent"]) + on(code),
        code_block=text + on(code),
        code_label=ink(foreground, 0.45) + on(code),
        link=ink(colors["text-primary"], attributes="underline"),
        heading=(
            ink(colors["text-primary"], attributes="bold underline"),
            ink(colors["text-primary"], attributes="bold"),
            ink(foreground, attributes="bold"),
        ),
        bullet=ink(colors["text-primary"]),
        quote=ink(foreground, 0.75, attributes="italic"),
        quote_bar=ink(foreground, 0.35),
        rule=ink(foreground, 0.25),
        table_head=ink(foreground, attributes="bold"),
        forced=ink(colors["text-warning"], attributes="italic"),
        chip=ink(foreground, 0.9) + on(chip),
        chip_arrow=ink(foreground, 0.5) + on(chip),
        chip_result=ink(colors["text-success"], attributes="bold") + on(chip),
        chip_failed=ink(foreground, 0.5) + on(chip),
        user=ink(foreground, 0.9),
        user_bar=ink(colors["primary"]),
        running=ink(colors["text-success"]),
        success=ink(colors["text-success"]),
        warning=ink(colors["text-warning"]),
        error=ink(colors["text-error"]),
        accent=ink(colors["text-accent"], attributes="bold"),
    )


def _colors(values: Mapping[str, str]) -> dict[str, Color]:
    """Parse the theme's variables; what is no plain colour falls back to a legible one."""
    colors: dict[str, Color] = {}
    for name, value in values.items():
        color: Color | None
        try:
            color = Color.parse(value)
        except ColorParseError:
            color = None
        if color is None or color.ansi is not None or color.a == 0:
            color = Color.parse({"background": "#121212"}.get(name, "#e0e0e0"))
        colors[name] = Color(*color.rgb)
    return colors
