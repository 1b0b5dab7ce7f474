"""Which key does what: one table for the widgets, the help, the hints, the palette and the config.

A `Place` is where keys have a meaning of their own. Its bindings are what its widget or screen
declares; their ids are the names that the config knows them by (`prompt.send`). `Keys.of(app)` says
what an action's keys are called after what the user changed:

    Keys.of(app).first("prompt.send")   # "Enter"

What is not shown (`show=False`) moves about: the help tells it, the palette leaves it out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from textual.app import App
from textual.binding import Binding, BindingsMap, BindingType
from textual.keys import format_key

Section = tuple[str, Sequence[tuple[str, str]]]
"""A title, and rows of keys and what they do."""


class Hint(NamedTuple):
    """Keys and what they do, as a line tells it; `key` is the one that a click stands for."""

    keys: str
    does: str
    key: str = ""


_DIGITS = range(1, 10)

EVERYWHERE = (
    *(
        Binding(
            f"alt+{n}",
            f"pick({n - 1})",
            f"Pick answer {n}; the others stop",
            id=f"chat.pick-{n}",
            priority=True,
        )
        for n in _DIGITS
    ),
    # Before the keys behind it go anywhere: they belong to what has the focus then.
    Binding(
        "tab",
        "tab(1)",
        "To the answers; take a completion",
        id="chat.focus-next",
        show=False,
        priority=True,
    ),
    Binding(
        "shift+tab", "tab(-1)", "Back again", id="chat.focus-previous", show=False, priority=True
    ),
    Binding("escape", "stop", "Stop; keep what is there", id="chat.stop"),
    Binding(
        "ctrl+c",
        "interrupt",
        "Stop; else copy what is selected",
        id="chat.interrupt",
        priority=True,
    ),
    Binding("f5", "more", "Ask again: more answers beside these", id="chat.again"),
    Binding("ctrl+t", "tree", "The conversation as a tree", id="chat.tree", priority=True),
    Binding("ctrl+o", "sessions", "Saved sessions", id="chat.sessions", priority=True),
    Binding("f1", "help", "Keys and commands", id="chat.help"),
    Binding(
        "ctrl+p", "command_palette", "Find a command or a theme", id="chat.palette", priority=True
    ),
    Binding("ctrl+q", "quit", "Quit", id="chat.quit", priority=True),
)

PROMPT = (
    Binding("enter", "submit", "Send", id="prompt.send"),
    Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line", id="prompt.newline"),
    Binding("ctrl+g", "app.editor", "Write in $EDITOR", id="prompt.editor"),
    Binding("ctrl+r", "reveal", "Show a folded paste in full", id="prompt.reveal"),
    Binding("up", "up", "Older prompt", id="prompt.older", show=False),
    Binding("down", "down", "Newer prompt", id="prompt.newer", show=False),
    Binding("pageup", "page(-1)", "Scroll the answers up", id="prompt.page-up", show=False),
    Binding("pagedown", "page(1)", "Scroll the answers down", id="prompt.page-down", show=False),
    Binding("escape", "close_list", id="prompt.close-list", show=False),
)

SCROLLING = (
    Binding("pageup", "page_up", "Scroll up a page", id="scroll.page-up", show=False),
    Binding("pagedown", "page_down", "Scroll down a page", id="scroll.page-down", show=False),
    Binding("home", "scroll_home", "Scroll to the start", id="scroll.start", show=False),
    Binding("end", "scroll_end", "Scroll to the end and follow it", id="scroll.end", show=False),
    Binding("shift+up", "scroll_up", "Scroll up a line", id="scroll.up", show=False),
    Binding("shift+down", "scroll_down", "Scroll down a line", id="scroll.down", show=False),
)

BRANCHING = (
    Binding("i", "app.tokens", "Look at the answer token by token", id="answers.tokens"),
    Binding("u", "app.undo", "Take the last pick back", id="answers.undo"),
    Binding("r", "app.more", "More answers beside these", id="answers.more"),
    Binding(
        "c", "app.continue", "Continue an answer that was stopped or cut", id="answers.continue"
    ),
    Binding("e", "app.edit", "Edit the message and ask it again", id="answers.edit"),
    Binding(
        "E", "app.edit_answer", "Edit the answer and go on from there", id="answers.edit-answer"
    ),
    Binding("y", "app.copy", "Copy the answer", id="answers.copy"),
    Binding("Y", "app.copy_code", "Copy its code block; again: its next", id="answers.copy-code"),
    Binding("t", "app.copy('tokens')", "Copy its token ids", id="answers.copy-tokens"),
)
"""What they do is the App's."""

NUMBERED = (
    *(
        Binding(str(n), f"pick({n - 1})", f"Pick answer {n}", id=f"answers.pick-{n}", show=False)
        for n in _DIGITS
    ),
)

CHOOSING = (
    Binding("enter", "pick_current", "Pick the focused answer", id="answers.pick"),
    Binding("left,h", "move('left')", "Answer to the left", id="answers.left", show=False),
    Binding("right,l", "move('right')", "Answer to the right", id="answers.right", show=False),
    Binding("up,k", "move('up')", "Answer above, else scroll", id="answers.up", show=False),
    Binding("down,j", "move('down')", "Answer below, else scroll", id="answers.down", show=False),
    Binding("z", "zoom", "Zoom the focused answer, or all again", id="answers.zoom"),
    Binding("d", "part", "Mark where the answers part, or no longer", id="answers.part"),
    Binding("f", "unfold", "Show what was thought, or fold it", id="answers.unfold"),
)

ANSWERS = (*NUMBERED, *CHOOSING)

TRANSCRIPT = (
    Binding("f", "unfold", "Show long messages and thoughts, or fold them", id="transcript.unfold"),
    Binding("up,k", "scroll_up", "Scroll up a line", id="transcript.up", show=False),
    Binding("down,j", "scroll_down", "Scroll down a line", id="transcript.down", show=False),
)

TOKEN_VIEW = (
    Binding("left,h", "step(-1)", "The token before", id="tokens.left", show=False),
    Binding("right,l", "step(1)", "The token behind", id="tokens.right", show=False),
    Binding("up,k", "line(-1)", "A line up", id="tokens.up", show=False),
    Binding("down,j", "line(1)", "A line down", id="tokens.down", show=False),
    Binding("home", "edge('home')", "The start of the line", id="tokens.line-start", show=False),
    Binding("end", "edge('end')", "The end of the line", id="tokens.line-end", show=False),
    Binding("ctrl+home,g", "edge('first')", "The first token", id="tokens.first", show=False),
    Binding(
        "ctrl+end,G",
        "edge('last')",
        "The last token; goes on with it while it grows",
        id="tokens.last",
        show=False,
    ),
    Binding("pageup", "page(-1)", "A page up", id="tokens.page-up", show=False),
    Binding("pagedown", "page(1)", "A page down", id="tokens.page-down", show=False),
    Binding("n", "surprise(1)", "The next surprising token", id="tokens.next-surprise"),
    Binding(
        "N,shift+n", "surprise(-1)", "The surprising token before", id="tokens.previous-surprise"
    ),
    Binding("enter,tab", "choose", "Its alternatives", id="tokens.alternatives"),
)

TOKEN_SCREEN = (
    Binding("escape,q,i", "close", "Close", id="tokens.close"),
    Binding("t", "type", "Fork with text of your own", id="tokens.type"),
    Binding("p", "prompt", "The message, or the answer again", id="tokens.prompt"),
    Binding("s", "score", "Ask the model for scores that are missing", id="tokens.score"),
    Binding("d", "part", "Where the answers part", id="tokens.part"),
    Binding(
        "left_square_bracket,less_than_sign",
        "other(-1)",
        "The answer before",
        id="tokens.previous-answer",
    ),
    Binding(
        "right_square_bracket,greater_than_sign",
        "other(1)",
        "The next answer",
        id="tokens.next-answer",
    ),
    *(
        Binding(str(n), f"show({n - 1})", f"Answer {n}", id=f"tokens.answer-{n}", show=False)
        for n in _DIGITS
    ),
)

ALTERNATIVES = (
    Binding("up,k", "choose(-1)", "The likelier alternative", id="alternatives.up", show=False),
    Binding("down,j", "choose(1)", "The less likely one", id="alternatives.down", show=False),
    Binding("home", "choose(-99)", "The likeliest", id="alternatives.first", show=False),
    Binding("end", "choose(99)", "The last", id="alternatives.last", show=False),
    Binding("enter", "fork", "Fork: new answers that go on from it", id="alternatives.fork"),
    Binding(
        "escape,tab,shift+tab,left,h",
        "leave",
        "Back to the text",
        id="alternatives.leave",
        show=False,
    ),
)

OUTLINE = (
    Binding("up,k", "move(-1)", "A line up", id="tree.up", show=False),
    Binding("down,j", "move(1)", "A line down", id="tree.down", show=False),
    Binding("pageup", "page(-1)", "A page up", id="tree.page-up", show=False),
    Binding("pagedown", "page(1)", "A page down", id="tree.page-down", show=False),
    Binding("home,g", "edge(0)", "The first line", id="tree.first", show=False),
    Binding("end,G", "edge(-1)", "The last line", id="tree.last", show=False),
    Binding(
        "left,h",
        "outwards",
        "Fold, or to the line that this one follows",
        id="tree.outwards",
        show=False,
    ),
    Binding(
        "right,l",
        "inwards",
        "Unfold, or to the first line under this one",
        id="tree.inwards",
        show=False,
    ),
    Binding("space", "fold", "Fold or unfold", id="tree.fold"),
    Binding("enter", "choose", "Go there", id="tree.go"),
)

TREE_SCREEN = (
    Binding("escape,q", "dismiss", "Close", id="tree.close"),
    Binding("i", "inspect", "The tokens of this answer", id="tree.tokens"),
    Binding("minus", "fold_all(True)", "Fold everything", id="tree.fold-all"),
    Binding("plus", "fold_all(False)", "Unfold everything", id="tree.unfold-all"),
)

SESSIONS = (
    Binding("escape", "close", "Close", id="sessions.close", priority=True),
    Binding("down", "list", "To the list", id="sessions.list", show=False),
    Binding("up", "search", "To the search", id="sessions.search", show=False),
    Binding("r", "rename", "Give it another name", id="sessions.rename"),
    Binding("d,delete", "delete", "Delete; asks once", id="sessions.delete"),
    Binding("u", "undelete", "Bring back what was deleted last", id="sessions.undelete"),
)

RATING = (
    *(
        Binding(f"{n},alt+{n}", f"pick({n - 1})", f"Answer {n} is the best", id=f"rating.pick-{n}")
        for n in _DIGITS
    ),
    Binding("t", "tie", "A tie: several are equally good", id="rating.tie"),
    Binding("b", "bad", "All are bad", id="rating.bad"),
    Binding("s", "skip", "Skip; at the end, through the skipped ones again", id="rating.skip"),
    Binding("u", "undo", "Back to the last one, as if nothing was said of it", id="rating.undo"),
    Binding("r", "retry", "Ask again, where answers did not come, or not whole", id="rating.retry"),
    Binding("escape,ctrl+c", "stop", "Stop what grows; keep what is there", id="rating.stop"),
    Binding(
        "tab,shift+tab",
        "other",
        "To the prompt, to scroll it, and back",
        id="rating.other",
        priority=True,
    ),
    Binding("p", "unfold", "Show a long prompt in full, or folded", id="rating.unfold"),
    Binding("f1", "help", "Keys", id="rating.help"),
    Binding("q,ctrl+q", "quit", "Quit; the next time goes on from there", id="rating.quit"),
)


class Place(NamedTuple):
    """Where keys have a meaning of their own.

    Attributes:
        title: as the help says it.
        area: what the keyboard is in then; a key means one thing in an area.
        node: the class of the widget or screen whose bindings they are.
    """

    title: str
    area: str
    node: str
    bindings: Sequence[Binding]


_BOTH = "In the answers and in the transcript"
PLACES = (
    Place("Everywhere", "chat", "ChatApp", EVERYWHERE),
    Place("In the prompt", "prompt", "Prompt", PROMPT),
    Place("In the answers", "answers", "CompareGrid", ANSWERS),
    Place(_BOTH, "answers", "CompareGrid", BRANCHING),
    Place(_BOTH, "answers", "Pane", SCROLLING),
    Place(_BOTH, "transcript", "Transcript", BRANCHING),
    Place(_BOTH, "transcript", "Transcript", SCROLLING),
    Place("In the transcript", "transcript", "Transcript", TRANSCRIPT),
    Place("In the tokens", "tokens", "TokenView", TOKEN_VIEW),
    Place("In the tokens", "tokens", "TokenScreen", TOKEN_SCREEN),
    Place("Among the alternatives", "alternatives", "TokenPanel", ALTERNATIVES),
    Place("In the tree", "tree", "OutlineView", OUTLINE),
    Place("In the tree", "tree", "TreeScreen", TREE_SCREEN),
    Place("In the saved sessions", "sessions", "SessionsScreen", SESSIONS),
    Place("While rating", "rating", "RateApp", RATING),
    Place("In the answers that are rated", "rating", "RateGrid", CHOOSING),
    Place("In the answers that are rated", "rating", "Pane", SCROLLING),
)

BINDINGS: Mapping[str, Binding] = {
    binding.id: binding for place in PLACES for binding in place.bindings if binding.id is not None
}
"""Every action that a key can be given to, by its id."""

_NAMES = {
    "enter": "Enter",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
}
_ARROWS = "←→↑↓"


def number_of(binding: Binding) -> int:
    """The number of a binding that is one of several: 3 of `chat.pick-3`; 0 of others."""
    number = (binding.id or "").rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def name_of(key: str, *, ascii: bool = False) -> str:
    """A key as it is printed on the keyboard: `ctrl+j` is Ctrl+J."""
    *modifiers, last = key.split("+")
    shown = last.capitalize() if ascii and len(last) > 1 and format_key(last) in _ARROWS else ""
    shown = shown or _NAMES.get(last) or (format_key(last).capitalize() if len(last) > 1 else last)
    if modifiers:
        shown = shown[0].upper() + shown[1:]
    return "+".join([*(modifier.capitalize() for modifier in modifiers), shown])


class Keys(NamedTuple):
    """The keys of all actions.

    Attributes:
        changed: ids to keys, comma-separated, as in Textual's keymap; what it does not hold is as
            in the table.
        ascii: arrows are told in words.
    """

    changed: Mapping[str, str] = {}
    ascii: bool = False

    @classmethod
    def of(cls, app: App[object]) -> Keys:
        """Those of the program; the table's in an app that has none of its own."""
        keys = getattr(app, "keys", None)
        return keys if isinstance(keys, Keys) else UNCHANGED

    def names(self, binding: Binding) -> list[str]:
        """What the keys of a binding are called."""
        keys = self.changed.get(binding.id or "") or binding.key
        return [name_of(key, ascii=self.ascii) for key in keys.split(",")]

    def first(self, *actions: str) -> str:
        """The first key of an action; of several actions, one behind the other."""
        firsts = [self.names(BINDINGS[action])[0] for action in actions]
        return ("" if all(first in _ARROWS for first in firsts) else " ").join(firsts)

    def hint(self, does: str, *actions: str) -> Hint:
        """What the first key of an action does; of several actions, the first keys."""
        binding = BINDINGS[actions[0]]
        key = (self.changed.get(actions[0]) or binding.key).split(",")[0]
        return Hint(self.first(*actions), does, key if len(actions) == 1 else "")

    def span(self, action: str, count: int) -> str:
        """The keys of numbered actions: `chat.pick`, 3 is Alt+1–3."""
        first, last = self.first(f"{action}-1"), self.first(f"{action}-{count}")
        if count == 1:
            return first
        numbered = first[:-1] == last[:-1] and (first[-1], last[-1]) == ("1", str(count))
        return f"{first}–{last[-1] if numbered else last}"

    def sections(self, nodes: Container[str]) -> list[Section]:
        """What the help tells of the places with these nodes; each action once."""
        sections: dict[str, dict[str, str]] = {}
        told: set[str | None] = set()
        for place in PLACES:
            if place.node in nodes:
                fresh = [binding for binding in place.bindings if binding.id not in told]
                sections.setdefault(place.title, {}).update(self._rows(fresh))
                told.update(binding.id for binding in fresh)
        return [(title, list(rows.items())) for title, rows in sections.items() if rows]

    def _rows(self, bindings: Iterable[Binding]) -> Iterator[tuple[str, str]]:
        """Keys and what they do; the nine bindings of a numbered key become one row."""
        for binding in bindings:
            number = number_of(binding)
            if number == 1:
                stem = (binding.id or "").removesuffix("-1")
                yield self.span(stem, 9), binding.description.replace(" 1", " 1 to 9")
            elif binding.description and not number:
                yield ", ".join(self.names(binding)), binding.description

    def bound(self, *tables: Iterable[BindingType]) -> Mapping[str, Sequence[Binding]]:
        """What each key does in tables of which later ones win."""
        bound: dict[str, list[Binding]] = {}
        for table in tables:
            bindings = BindingsMap(table)
            bindings.apply_keymap(self.changed)
            bound.update(bindings.key_to_bindings)
        return bound


UNCHANGED = Keys()
