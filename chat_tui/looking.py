"""The screens that look at a conversation, and what comes of what is asked for there.

`Looking(app, chat)` opens the token view and the tree; the App passes their messages on. It makes
the texts that the token view shows out of the tree's answers, and gets scores for those that have
none: a message of the user's, an answer of an old session.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from chat_tui.answer import Answer, Prompt
from chat_tui.chat import GROWING, Chat
from chat_tui.conversation import Conversation
from chat_tui.effects import ScoresCame
from chat_tui.labels import differing
from chat_tui.model import Model
from chat_tui.scores import Scored, parting, scored
from chat_tui.settings import show_top_k
from chat_tui.tree import Turn
from engine.messages import NO_ID, TokenScore

if TYPE_CHECKING:
    from chat_tui.app import ChatApp
    from chat_tui.screens.tokens import Subject, TokenScreen
    from chat_tui.screens.tree import TreeScreen

_NO_MODEL = "There is no model to ask yet."
_WHICH = "A part of a character, and the server does not tell which token it is."
_OTHER_MODEL = "It is {}'s; the model that is loaded has other tokens."
_UNTOLD = "The server did not tell."
_GROWS = "It is still growing; ask again when it has ended."


@dataclass(frozen=True)
class _Source:
    """What a text of the token view was made from: an answer, or the message that it answers."""

    turn: Turn
    answer: Answer
    message: bool = False


def sampling(answer: Answer) -> str:
    """The distribution that an answer was sampled from, in words."""
    if answer.temperature == 0:
        return "greedy"
    return f"T {answer.temperature:g}, {show_top_k(answer.top_k)}"


class Looking:
    """What the App knows of the screens above the chat."""

    def __init__(self, app: ChatApp, chat: Chat) -> None:
        self._app = app
        self._chat = chat
        self._wanted: dict[int, tuple[TokenScreen.Wanted, _Source]] = {}
        self._tree = chat.conversation.tree
        # What models thought of messages, by turn, prompt and model; not kept beyond this run.
        self._messages: dict[tuple[int, Prompt, Model], Sequence[TokenScore]] = {}

    def at_tokens(self, turn: Turn, answer: Answer) -> None:
        """The tokens of an answer; those of the turn's other answers and its message beside."""
        from chat_tui.screens.tokens import TokenScreen

        if self._tree is not self._chat.conversation.tree:
            self._tree = self._chat.conversation.tree
            self._messages.clear()
        shown = self._chat.turn is not None and self._chat.turn.turn is turn
        place = turn.index(answer.id)
        parted = parting(turn.answers) if shown and self._app.grid.parting else None
        self._app.push_screen(
            TokenScreen(
                [self._answer(turn, own) for own in turn.answers],
                self._message(turn, answer),
                shown=place,
                cursor=parted[place] if parted is not None else 0,
                parting=lambda: parting(turn.answers),
            )
        )

    def _answer(self, turn: Turn, answer: Answer) -> Subject:
        from chat_tui.screens.tokens import Subject

        count = turn.samples
        differs = differing(turn.answers)[turn.index(answer.id)]
        number = f"Answer {turn.told(answer.id)} of {count}" if count > 1 else "Answer"
        subject = Subject(
            " · ".join(part for part in (number, differs.model, differs.system) if part),
            partial(scored, answer),
            sampling(answer),
            answer.id,
        )
        if NO_ID in answer.tokens:
            return replace(subject, missing=_UNTOLD)
        return replace(subject, source=_Source(turn, answer))

    def _message(self, turn: Turn, answer: Answer) -> Subject:
        """What the turn added to the conversation before `answer`."""
        from chat_tui.screens.tokens import Subject

        if not answer.prompt.ids or NO_ID in answer.prompt.ids:
            whole = Scored(NO_ID, turn.user.encode("utf-8", "surrogatepass"))
            return Subject("Message", lambda start: [whole][start:], missing=_UNTOLD)
        return Subject(
            "Message",
            partial(self._read_message, turn, answer),
            apart="template",
            source=_Source(turn, answer, message=True),
        )

    def _read_message(self, turn: Turn, answer: Answer, start: int) -> Sequence[Scored]:
        """Ids, until they are scored; then only what the user wrote counts."""
        prompt = answer.prompt
        if start >= len(prompt.ids):
            return ()
        scores = self._messages.get((turn.id, prompt, answer.model))
        if scores is None:
            return [Scored(token, None) for token in prompt.ids[start:]]
        # The first token of all has none: it follows nothing.
        known = [*[None] * (len(prompt.ids) - len(scores)), *scores]
        written = within([score.piece if score else b"" for score in known], turn.user)
        return [
            Scored(token, score.piece if score else None, place not in written, score)
            for place, (token, score) in enumerate(zip(prompt.ids, known, strict=True))
        ][start:]

    def at_tree(self) -> None:
        from chat_tui.screens.tree import TreeScreen

        turn, answer = self._chat.current_turn, self._chat.current
        here = (turn.id, answer.id) if turn is not None and answer is not None else None
        conversation = self._chat.conversation
        self._app.push_screen(TreeScreen(conversation.tree, conversation.path, here))

    # What is asked for there.

    def fork(self, message: TokenScreen.Fork) -> None:
        """New answers from a token on; the screen stays where that cannot be now."""
        if self._chat.running:
            self._app.notify(GROWING, markup=False)
            return
        if isinstance(message.instead, str) and "\N{REPLACEMENT CHARACTER}" in message.instead:
            self._app.notify(_WHICH, markup=False)
            return
        self._app.close_screens()
        answer = self._chat.conversation.tree.answers[message.answer]
        self._app.act(lambda: self._chat.fork(answer, message.index, message.instead))

    def jump(self, message: TreeScreen.Jump) -> None:
        if self._chat.running:
            self._app.notify(GROWING, markup=False)
            return
        self._app.close_screens()
        if message.answer is not None:
            answer = message.answer
            self._app.act(lambda: self._chat.go(answer))
        else:
            self._app.act(lambda: self._chat.show(message.turn))

    def score(self, message: TokenScreen.Wanted) -> None:
        """Have the model read a text that has no scores."""
        source = message.subject.source
        assert isinstance(source, _Source)
        answer = source.answer
        ask = None
        there = self._chat.phase == "ready"
        if there and self._chat.lanes.of(answer.model) is None:
            message.screen.scored(message.place, _OTHER_MODEL.format(answer.model.name))
        elif not source.message and answer.reason is None:
            message.screen.scored(message.place, _GROWS)
        elif (ask := self._ask(source)) is None:
            message.screen.scored(message.place, _NO_MODEL)
        else:
            self._wanted[ask] = message, source

    def _ask(self, source: _Source) -> int | None:
        turn, answer = source.turn, source.answer
        before = Conversation(self._tree, self._tree.parent(turn))
        prompt = before.prompt_tokens(answer.prompt)
        if source.message:
            return self._chat.score(answer.model, prompt, len(prompt) - len(answer.prompt.ids))
        whole = [*prompt, *answer.tokens]
        return self._chat.score(answer.model, whole, len(prompt), answer.temperature, answer.top_k)

    def scores_came(self, effect: ScoresCame) -> None:
        """They are kept with what was scored, whoever still looks at it."""
        if effect.ask not in self._wanted:
            return
        wanted, source = self._wanted.pop(effect.ask)
        if not effect.problem and source.message:
            answer = source.answer
            self._messages[source.turn.id, answer.prompt, answer.model] = effect.scores
        elif not effect.problem:
            source.answer.fill_scores(effect.scores)
            self._app.grid.rescored(source.answer)
        if wanted.screen.is_attached:
            wanted.screen.scored(wanted.place, effect.problem)


def within(pieces: Sequence[bytes], text: str) -> range:
    """The places of the tokens that `text` was cut into: those of its last occurrence in what the
    pieces say; all, where it is not found as it was written."""
    at = b"".join(pieces).rfind(text.strip().encode("utf-8", "surrogatepass"))
    if at < 0:
        return range(len(pieces))
    ends = list(accumulate(map(len, pieces)))
    last = at + len(text.strip().encode("utf-8", "surrogatepass"))
    return range(bisect_right(ends, at), bisect_left(ends, last) + 1)
