"""A conversation as a tree of turns and answers; no screen and no engine involved."""

from __future__ import annotations

from pathlib import Path

import pytest

from chat_tui.answer import Answer, Prompt
from chat_tui.model import Model
from chat_tui.tree import Tree, Turn
from engine.messages import Alternative, ModelInfo, TokenScore, ToolCall
from tests.chat_tui.fakes import INFO

MODEL = Model("tiny")


def answered(tree: Tree, turn: Turn, *pieces: str, scored: bool = False) -> Answer:
    """An answer of one token per piece; a piece in brackets is forced."""
    answer = tree.add_answer(turn, prompt=Prompt(), model=MODEL, seed=7)
    for piece in pieces:
        forced = piece.startswith("[")
        text = piece.strip("[]")
        answer.append(len(piece) + 1, int(not forced), text, score(text) if scored else None)
    answer.end("stop", (4,))
    return answer


def score(text: str) -> TokenScore:
    others = (Alternative(50, b"other", -0.5), Alternative(51, text.encode(), -1.0))
    return TokenScore(51, text.encode(), -1.0, -0.9, 1.5, 1, others)


def test_a_path_is_the_picks_from_the_root() -> None:
    tree = Tree()
    first = tree.add_turn(None, "Hi")
    one, two = answered(tree, first, "one"), answered(tree, first, "two")
    second = tree.add_turn(two, "More")
    three = answered(tree, second, "three")
    beside = tree.add_turn(one, "Else")
    assert [pick.answer.text for pick in tree.path(three)] == ["two", "three"]
    assert [pick.picked for pick in tree.path(three)] == [1, 0]
    assert tree.path(None) == []
    assert tree.children(None) == [first]
    assert tree.children(one) == [beside]
    assert tree.parent(second) is two
    assert [(depth, turn.id) for depth, turn in tree.walk()] == [(0, 1), (1, 3), (1, 2)]


def test_every_token_knows_which_characters_it_completed() -> None:
    tree = Tree()
    answer = answered(tree, tree.add_turn(None, "?"), "a", "", "∂b", "[84>>]", "")
    assert [answer.text[slice(*answer.span(i))] for i in range(5)] == ["a", "", "∂b", "84>>", ""]
    assert answer.forced == [(3, 7)]
    assert answer.mask == [1, 1, 1, 0, 1]


def test_a_beginning_keeps_masks_scores_and_the_calls_that_lie_in_it() -> None:
    tree = Tree()
    answer = answered(tree, tree.add_turn(None, "?"), "<<1+2=", "[3>>]", " so", scored=True)
    answer.set_call(ToolCall(0, 9, "1+2", "3", True))
    whole = answer.beginning(2)
    assert (whole.text, whole.mask, whole.forced) == ("<<1+2=3>>", (1, 0), ((6, 9),))
    assert whole.calls == (ToolCall(0, 9, "1+2", "3", True),)
    cut = answer.beginning(1)
    assert cut.calls == (ToolCall(0, 6, "1+2", None, False),)
    assert cut.scores == (answer.scores[0],)


def test_a_fork_takes_an_alternative_and_what_was_thought_of_it() -> None:
    tree = Tree()
    turn = tree.add_turn(None, "?")
    source = answered(tree, turn, "a", " b", " c", scored=True)
    beginning = source.fork(1, 50)
    fork = tree.add_answer(turn, prompt=Prompt(), model=MODEL)
    fork.begin(beginning, beginning.tokens, "a other")
    fork.append(9, 1, " d", score(" d"))
    assert (fork.given, fork.source, fork.sampled) == (2, source.id, 1)
    assert fork.tokens == [source.tokens[0], 50, 9]
    assert fork.mask == [1, 0, 1]
    assert fork.text == "a other d"
    assert [fork.text[slice(*fork.span(i))] for i in range(3)] == ["a", " other", " d"]
    taken = fork.scores[1]
    assert taken is not None
    assert (taken.token, taken.logprob, taken.rank, taken.sampled_logprob) == (50, -0.5, 0, None)


def test_a_fork_with_ones_own_words_leaves_their_encoding_to_the_engine() -> None:
    tree = Tree()
    turn = tree.add_turn(None, "?")
    source = answered(tree, turn, "a", " b")
    beginning = source.fork(1, " xyz")
    assert (beginning.tokens, beginning.then) == ((source.tokens[0],), " xyz")
    fork = tree.add_answer(turn, prompt=Prompt(), model=MODEL)
    fork.begin(beginning, [source.tokens[0], 70, 71], "a xyz")
    assert (fork.given, fork.mask, fork.ends) == (3, [1, 0, 0], [1, 5, 5])
    fork.begin(beginning, [source.tokens[0], 70, 71], "a xyz", [1, 3, 5])
    assert fork.ends == [1, 3, 5]  # where the engine knows better


@pytest.mark.parametrize(
    ("text", "kept", "then"),
    [
        ("The sea is blue and wide", 3, " blue and wide"),  # changed from the fourth word on
        ("The sea is red.", 4, ""),  # nothing changed: all but the stop token
        ("The sea is red. And", 4, " And"),
        ("The seaside is red.", 1, " seaside is red."),  # a word that grew is encoded anew
        ("A sea", 0, "A sea"),
        ("", 0, ""),
    ],
)
def test_an_edited_answer_keeps_the_tokens_before_the_first_change(
    text: str, kept: int, then: str
) -> None:
    tree = Tree()
    answer = answered(tree, tree.add_turn(None, "?"), "The", " sea", " is", " red.", "")
    beginning = answer.edited(text)
    assert (len(beginning.tokens), beginning.then) == (kept, then)
    assert beginning.text + beginning.then == text


def test_an_edit_behind_a_tool_call_keeps_it_and_one_inside_does_not() -> None:
    tree = Tree()
    answer = answered(tree, tree.add_turn(None, "?"), "It", " <<", "1 +", " 2=", "[3>>]", " ok")
    answer.set_call(ToolCall(3, 14, "1 + 2", "3", True))
    assert len(answer.edited("It <<1 + 2=3>> no").tokens) == 5
    assert len(answer.edited("It <<1 + 4=5>> ok").tokens) == 1


def test_a_call_is_known_by_where_it_begins() -> None:
    tree = Tree()
    answer = answered(tree, tree.add_turn(None, "?"), "<<1", "<<2")
    assert answer.set_call(ToolCall(0, 3, "1", None, False)) == 0
    assert answer.set_call(ToolCall(3, 6, "2", None, False)) == 1
    assert answer.set_call(ToolCall(3, 6, "2", None, True)) == 1
    assert [call.done for call in answer.calls] == [False, True]


def test_an_answer_that_never_began_can_be_forgotten() -> None:
    tree = Tree()
    turn = tree.add_turn(None, "Hi")
    answer = tree.add_answer(turn, prompt=Prompt(), model=MODEL)
    answer.end("cancelled")
    assert answer.empty
    tree.remove_answer(answer)
    tree.remove_turn(turn)
    assert not tree.turns
    assert not tree.answers
    assert tree.add_turn(None, "Hi").id == 2


def test_another_models_answer_is_told_as_text() -> None:
    tree = Tree()
    answer = answered(tree, tree.add_turn(None, "Hi"), "one")
    (pick,) = tree.path(answer)
    assert pick.exchange(Model("tiny", dtype="float32")).tokens == tuple(answer.tokens)
    assert pick.exchange(Model("large")).tokens is None
    assert pick.exchange(Model("large")).text == "one"


def test_a_model_is_its_file_whatever_it_is_called() -> None:
    tiny = Model("tiny", fingerprint="a")
    assert tiny.speaks_with(Model("the same file by its path", fingerprint="a"))
    assert not tiny.speaks_with(Model("tiny", fingerprint="b"))


def test_two_files_of_one_name_are_two_models(tmp_path: Path) -> None:
    def model(content: bytes) -> Model:
        path = tmp_path / "m.gguf"
        path.write_bytes(content)
        return Model.of(ModelInfo(**{**INFO.__dict__, "path": str(path)}))

    a, again, b = model(b"a" * 3_000_000), model(b"a" * 3_000_000), model(b"a" * 3_000_001)
    assert a == again
    assert a.size == 3_000_000
    assert not a.speaks_with(b)
    assert Model.of(INFO).fingerprint == ""
