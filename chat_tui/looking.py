"""The screens that look at a conversation, and what comes of what is asked for there.

`Looking(app, chat)` opens the token view and the tree; the App passes their messages on. It makes
the texts that the token view shows out of the tree's answers, and gets scores for those that have
none: a message of the user's, an answer of an old session.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from chat_tui.chat import GROWING, Chat
from chat_tui.conversation import Conversation
from chat_tui.effects import ScoresCame
from chat_tui.scores import Scored, scored
from chat_tui.settings import show_top_k
from chat_tui.tree import Answer, Turn

if TYPE_CHECKING:
    from chat_tui.app import ChatApp
    from chat_tui.screens.tokens import TokenScreen
    from chat_tui.screens.tree import TreeScreen

_NO_MODEL = "There is no model to ask yet."
_OTHER_MODEL = "It is {}'s; the model that is loaded has other tokens."


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
        self._wanted: dict[int, TokenScreen.Wanted] = {}

    def at_tokens(self, turn: Turn, answer: Answer) -> None:
        """The tokens of an answer; those of the turn's other answers and its message beside."""
        from chat_tui.screens.tokens import Subject, TokenScreen

        count = len(turn.answers)
        answers = [
            Subject(
                f"Answer {place} of {count}" if count > 1 else "Answer",
                partial(scored, own),
                sampling(own),
                own.id,
                whole=partial(self._whole, turn, own),
            )
            for place, own in enumerate(turn.answers, 1)
        ]
        message = Subject(
            "Message", partial(_message, answer), whole=partial(self._prompt, turn, answer)
        )
        self._app.push_screen(TokenScreen(answers, message, shown=turn.index(answer.id)))

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
        subject = message.subject
        answer = self._chat.conversation.tree.answers.get(subject.answer or 0)
        model = self._chat.model
        if answer is not None and model is not None and not model.speaks_with(answer.model):
            message.screen.put(message.place, (), _OTHER_MODEL.format(answer.model.name))
            return
        assert subject.whole is not None
        ask = self._chat.score(*subject.whole())
        if ask is None:
            message.screen.put(message.place, (), _NO_MODEL)
        else:
            self._wanted[ask] = message

    def scores_came(self, effect: ScoresCame) -> None:
        wanted = self._wanted.pop(effect.ask, None)
        if wanted is not None and wanted.screen.is_attached:
            wanted.screen.put(wanted.place, effect.scores, effect.problem)

    # Texts, as all the ids that lead to them.

    def _prompt(self, turn: Turn, answer: Answer) -> tuple[Sequence[int], int]:
        """What was prefilled for an answer, and where the turn's message begins in it."""
        tree = self._chat.conversation.tree
        tokens = Conversation(tree, tree.parent(turn)).prompt_tokens(answer.prompt)
        return tokens, len(tokens) - len(answer.prompt.ids)

    def _whole(self, turn: Turn, answer: Answer) -> tuple[Sequence[int], int]:
        prompt, _ = self._prompt(turn, answer)
        return [*prompt, *answer.tokens], len(prompt)


def _message(answer: Answer, start: int) -> list[Scored]:
    """What the message that was answered added to the conversation: ids, until they are scored."""
    return [Scored(token, None) for token in answer.prompt.ids[start:]]
