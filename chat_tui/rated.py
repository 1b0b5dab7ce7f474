"""A session that rates a file: what its tree holds of each of the file's prompts.

    rated = Rated(tree, prompts, time.time)
    rated.turns[3]                        # what was said of the answers to the fourth prompt
    rated.head(0)                         # what the first prompt follows

What the tree holds without a judgement, when a file is taken up again, was not judged and is
forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chat_tui.answer import Answer, Prompt
from chat_tui.model import GIVEN
from chat_tui.packing import StoredScores, pack_scores
from chat_tui.prompts import FilePrompt
from chat_tui.tree import Tree, Turn
from engine.messages import NO_ID, TokenScore


class Rated:
    """Attributes:
    tree: of the session.
    turns: those that were judged, by the places of their prompts in the file.
    """

    def __init__(
        self, tree: Tree, prompts: Sequence[FilePrompt], today: Callable[[], float]
    ) -> None:
        self.tree, self._prompts, self._today = tree, prompts, today
        self._prune()
        judged = {turn.judgement.prompt: turn for turn in tree.turns.values() if turn.judgement}
        self.turns = {
            place: judged[prompt.key]
            for place, prompt in enumerate(prompts)
            if prompt.key in judged
        }
        self._heads: dict[int, Answer | None] = {}

    def _prune(self) -> None:
        """Take out what was not judged, but for what stands before something that was."""
        kept: set[int] = set()
        for turn in self.tree.turns.values():
            if turn.judgement is not None:
                kept.add(turn.id)
                kept |= {pick.turn.id for pick in self.tree.path(self.tree.parent(turn))}
        for turn in reversed(list(self.tree.turns.values())):
            if turn.id not in kept:
                self.forget(turn)

    def forget(self, turn: Turn) -> None:
        """Take a turn out, with its answers."""
        for answer in list(turn.answers):
            self.tree.remove_answer(answer)
        self.tree.remove_turn(turn)

    def head(self, place: int) -> Answer | None:
        """The answer that the prompt follows, where it came with some."""
        if place not in self._heads:
            head: Answer | None = None
            for user, text in self._prompts[place].history:
                turn = self.tree.add_turn(head, user, self._today())
                head = self.tree.add_answer(turn, prompt=Prompt(), model=GIVEN)
                head.tokens, head.mask, head.ends, head.text = [NO_ID], [0], [len(text)], text
                head.end("stop")
                turn.picked = head.id
            self._heads[place] = head
        return self._heads[place]

    def pack(self) -> None:
        """Scores take a hundred times the room of the text, and what was judged before has long
        been written down."""
        for turn in self.turns.values():
            for answer in turn.answers:
                if isinstance(answer.scores, list) and answer.scores and answer.reason is not None:
                    answer.scores = _packed(answer.scores)


def _packed(scores: Sequence[TokenScore | None]) -> StoredScores:
    data = pack_scores(scores)
    return StoredScores(lambda: [data], len(scores))
