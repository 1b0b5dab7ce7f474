"""How text looks in a theme: one frozen table of Rich styles.

`Palette.of(app)` reads the theme's variables, as the style sheet does, so that every Textual theme
works; palettes are cached by what was read. A style has a background only where it means something:
elsewhere the widget's own shows through. In a theme of the terminal's own sixteen colours, which
cannot be blended, faint is dim, and a strong ground is made by reversing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rich.color import Color as RichColor
from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError

TokenType = tuple[str, ...]

_READ = (
    "background",
    "foreground",
    "primary",
    "text-primary",
    "text-secondary",
    "text-accent",
    "text-success",
    "text-warning",
    "text-error",
    "warning",
    "error",
)

HEAT = (0.0, 0.1, 0.2, 0.32, 0.46, 0.62, 0.8)
"""How strong the ground under a token is, by how much it surprised the model (`scores.level`)."""
_HEAT_SIGNS = ("", "", "", "underline", "underline", "bold underline", "bold reverse")
"""The same where there are no colours to blend; every step can be told without colours at all."""


@dataclass(frozen=True, eq=False)
class Palette:
    """Styles by role. `syntax` maps prefixes of Pygments token types; `heat` has two shades for
    each level, so that a token can be told from its neighbour (`other`: where there is none)."""

    text: Style
    muted: Style
    faint: Style
    strong: Style
    emphasis: Style
    strike: Style
    code: Style
    code_block: Style
    code_label: Style
    syntax: Mapping[TokenType, Style]
    link: Style
    headings: tuple[Style, Style, Style]
    bullet: Style
    quote: Style
    bar: Style
    rule: Style
    table_head: Style
    forced: Style
    chip: Style
    chip_quiet: Style
    chip_result: Style
    user: Style
    user_bar: Style
    focus: Style
    marked: Style
    running: Style
    success: Style
    warning: Style
    error: Style
    heat: tuple[tuple[Style, Style], ...]
    other: Style
    sign: Style
    special: Style
    given: Style
    blurred: Style
    parting: Style

    @classmethod
    def of(cls, app: App[object]) -> Palette:
        """The palette of the app's theme."""
        variables = app.theme_variables
        values = tuple(variables.get(name, "") for name in _READ)
        return _palette(values, app.current_theme.dark, app.no_color)


@lru_cache(maxsize=8)
def _palette(values: tuple[str, ...], dark: bool, no_color: bool) -> Palette:
    colors = _colors(dict(zip(_READ, values, strict=True)), dark)
    background = colors["background"]
    foreground = colors["foreground"]
    terminal_colors = background.ansi is not None

    def ink(color: Color, strength: float = 1.0, attributes: str = "") -> Style:
        style = Style.parse(attributes)
        if terminal_colors or color.ansi is not None:
            return style + Style(color=color.rich_color, dim=strength < 0.65 or None)
        return style + Style(color=background.blend(color, strength).rich_color)

    def on(color: Color, strength: float) -> Style:
        if terminal_colors or color.ansi is not None:
            return Style(reverse=True) if strength > 0.1 else Style.null()
        return Style(bgcolor=background.blend(color, strength).rich_color)

    def heat(step: int, other: bool) -> Style:
        signs = Style.parse(_HEAT_SIGNS[step]) if terminal_colors or no_color else Style.null()
        if terminal_colors:
            color = colors["warning"] if step < 5 else colors["error"]
            return signs + Style(color=color.rich_color if step > 2 else None)
        warm = colors["warning"].blend(colors["error"], step / (len(HEAT) - 1))
        ground = background.blend(warm, HEAT[step])
        if signs.reverse:
            return signs + ink(foreground)
        # Every other token a little lighter: where one ends can be seen without a line between.
        ground = ground.blend(foreground, 0.05) if other else ground
        return signs + Style(color=ink_on(ground), bgcolor=ground.rich_color)

    def ink_on(ground: Color) -> RichColor:
        distance = abs(ground.brightness - foreground.brightness)
        text = foreground if distance > 0.3 else background
        return ground.blend(text, 0.94).rich_color

    code = on(foreground, 0.06)
    chip = on(colors["primary"], 0.25)
    return Palette(
        text=ink(foreground, 0.92),
        muted=ink(foreground, 0.6),
        faint=ink(foreground, 0.38),
        strong=ink(foreground, attributes="bold"),
        emphasis=Style(italic=True),
        strike=Style(strike=True),
        code=ink(colors["text-accent"], 0.95) + code,
        code_block=ink(foreground, 0.9) + code,
        code_label=ink(foreground, 0.4) + code,
        syntax={
            ("Comment",): ink(foreground, 0.5, "italic"),
            ("Keyword",): ink(colors["text-primary"]),
            ("Keyword", "Constant"): ink(colors["text-warning"]),
            ("Literal", "Number"): ink(colors["text-warning"]),
            ("Literal", "String"): ink(colors["text-success"]),
            ("Name", "Builtin"): ink(colors["text-primary"]),
            ("Name", "Class"): ink(foreground, attributes="bold"),
            ("Name", "Decorator"): ink(colors["text-secondary"]),
            ("Name", "Function"): ink(foreground, attributes="bold"),
            ("Name", "Tag"): ink(colors["text-primary"]),
            ("Operator", "Word"): ink(colors["text-primary"]),
            ("Generic", "Deleted"): ink(colors["text-error"]),
            ("Generic", "Inserted"): ink(colors["text-success"]),
        },
        link=ink(colors["text-primary"], attributes="underline"),
        headings=(
            ink(colors["text-primary"], attributes="bold underline"),
            ink(colors["text-primary"], attributes="bold"),
            ink(foreground, attributes="bold"),
        ),
        bullet=ink(colors["text-primary"], 0.9),
        quote=ink(foreground, 0.7),
        bar=ink(foreground, 0.3),
        rule=ink(foreground, 0.22),
        table_head=ink(foreground, attributes="bold"),
        forced=ink(colors["text-warning"], 0.9, "italic"),
        chip=ink(foreground) + chip,
        chip_quiet=ink(foreground, 0.55) + chip,
        chip_result=ink(colors["text-success"], attributes="bold") + chip,
        user=ink(foreground),
        user_bar=ink(colors["primary"]),
        # Reversed, so that it can be told without colours too.
        marked=ink(colors["primary"], attributes="bold reverse"),
        focus=on(colors["primary"], 0.45),
        running=ink(colors["text-primary"]),
        success=ink(colors["text-success"]),
        warning=ink(colors["text-warning"]),
        error=ink(colors["text-error"]),
        heat=tuple((heat(step, False), heat(step, True)) for step in range(len(HEAT))),
        other=on(foreground, 0.05),
        sign=Style(dim=True) if terminal_colors else ink(foreground, 0.45),
        special=ink(colors["text-accent"], attributes="bold"),
        given=ink(colors["text-primary"], attributes="italic underline"),
        parting=ink(colors["text-warning"], attributes="bold reverse"),
        blurred=ink(colors["text-primary"], attributes="bold") + on(colors["primary"], 0.35),
    )


def _colors(values: Mapping[str, str], dark: bool) -> dict[str, Color]:
    """Parse the theme's variables; what is no colour becomes black or white."""
    black, white = Color(18, 18, 18), Color(224, 224, 224)
    colors: dict[str, Color] = {}
    for name, value in values.items():
        try:
            color = Color.parse(value)
        except ColorParseError:
            color = black if (name == "background") is dark else white
        colors[name] = color if color.ansi is not None else Color(*color.rgb)
    return colors
