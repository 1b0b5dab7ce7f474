"""A session as a web page that stands alone: the answers of each turn side by side, and under the
pointer what the model thought of each token.

Nothing in it is fetched or run: no script, no link, one style sheet, and a content security policy
that says so. Every text is escaped, control characters are made visible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from chat_tui.answer import Answer
from chat_tui.rendering.sanitise import sanitise
from chat_tui.scores import Surprise, is_known, scored
from chat_tui.session import Session
from chat_tui.tree import Pick, Turn
from engine.messages import NO_ID, TokenScore

_COLD = 8.0
"""Nats of surprisal from which on the heat is full."""

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent);
  --heat: 224 92 38; --good: light-dark(#2f855a, #68d391); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 110rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.4rem; }
.about, .figures, .place { margin: .3rem 0; opacity: .65; font-size: .85em; }
.turn { margin: 2rem 0; } .turn.aside { margin-left: 2rem; border-left: 2px solid var(--line);
  padding-left: 1rem; }
.user { white-space: pre-wrap; border-left: 3px solid #4a88d8; padding-left: .8rem;
  margin: .5rem 0 1rem; }
.answers { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }
h1, .user { overflow-wrap: anywhere; }
.answer { border: 1px solid var(--line); border-radius: 6px; padding: .7rem .9rem; min-width: 0; }
.answer.picked { border-color: var(--good); } .answer.picked h2::after { content: " picked";
  color: var(--good); font-weight: normal; }
.answer h2 { font-size: .9rem; margin: 0 0 .4rem; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font: inherit; }
.answer:hover .t, .answer:focus .t { background: rgb(var(--heat) / var(--h, 0)); }
.t:hover { outline: 1px solid currentColor; border-radius: 2px; }
.forced { border-bottom: 2px dotted #b7791f; } .given { opacity: .7; }
@media print { :root { color-scheme: light; } body { margin: 0; } .pointing { display: none; }
  .answer, .user { break-inside: avoid; } .user { break-after: avoid; }
  .t { background: rgb(var(--heat) / var(--h, 0)); print-color-adjust: exact; } }
"""


def to_html(session: Session) -> str:
    """The page."""
    title = _text(session.title)
    conversation = session.conversation
    on_path = {pick.turn.id for pick in conversation.path}
    if session.shown is not None:
        on_path.add(session.shown.id)
    tree = conversation.tree
    models = dict.fromkeys(answer.model.name for answer in tree.answers.values())
    head = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{_STYLE}</style></head><body>
<h1>{title}</h1>
<p class="about">{_text(", ".join(models))} · {_count(len(tree.turns), "turn")},
{_count(len(tree.answers), "answer")}. The stronger the ground under a token, the more it surprised
the model. Dotted: forced, not sampled.</p>
<p class="about pointing">Point at an answer to see it, and at a token for its probability and what
else could have stood there.</p>
"""
    turns = [line for _, turn in tree.walk() for line in _turn(turn, turn.id in on_path)]
    return head + "\n".join(turns) + "\n</body></html>\n"


def _turn(turn: Turn, on_path: bool) -> Iterator[str]:
    aside = "" if on_path else " aside"
    yield f'<section class="turn{aside}" id="turn-{turn.id}">'
    if not on_path:
        after = "the beginning" if turn.parent is None else f"answer {turn.parent}"
        link = "" if turn.parent is None else f' <a href="#answer-{turn.parent}">↑</a>'
        yield f'<p class="place">a branch, after {after}{link}</p>'
    yield f'<div class="user">{_text(turn.user)}</div><div class="answers">'
    for answer in turn.answers:
        picked = " picked" if answer.id == turn.picked else ""
        yield f'<article class="answer{picked}" id="answer-{answer.id}" tabindex="0">'
        yield f"<h2>{turn.told(answer.id)}</h2>"
        yield f'<pre class="text">{"".join(_tokens(answer))}</pre>'
        caption = _text(Pick(turn, answer).caption)
        tokens = _count(len(answer.tokens), "token")
        yield f'<p class="figures">{caption} · {tokens}{_sums(answer)}</p></article>'
    yield "</div></section>"


def _tokens(answer: Answer) -> Iterator[str]:
    for index, token in enumerate(answer.tokens):
        start, end = answer.span(index)
        score = answer.scores[index] if index < len(answer.scores) else None
        classes = ["t"]
        if not answer.mask[index]:
            classes.append("forced")
        if index < answer.given:
            classes.append("given")
        known = score is not None and is_known(score.logprob)
        heat = f' style="--h:{_heat(score):.2f}"' if score is not None and known else ""
        about = escape(_about(token, score), quote=True)
        text = _text(answer.text[start:end])
        yield f'<span class="{" ".join(classes)}"{heat} title="{about}">{text}</span>'
    yield _text(answer.text[answer.ends[-1] if answer.ends else 0 :])


def _about(token: int, score: TokenScore | None) -> str:
    number = "not told" if token == NO_ID else str(token)
    if score is None:
        return f"token {number}"
    others = ", ".join(
        f"{_piece(other.piece)} {math.exp(other.logprob):.1%}" for other in score.alternatives[:5]
    )
    likely = f"{math.exp(score.logprob):.2%}" if is_known(score.logprob) else "not known"
    entropy = "not known" if math.isnan(score.entropy) else f"{score.entropy:.2f} nats"
    return f"token {number} · p {likely} · rank {score.rank + 1} · entropy {entropy}\n{others}"


def _piece(piece: bytes) -> str:
    return repr(sanitise(piece.decode("utf-8", "replace")))


def _heat(score: TokenScore) -> float:
    return max(0.0, min(1.0, -score.logprob / _COLD))


def _sums(answer: Answer) -> str:
    """Of what the model chose itself."""
    surprise = Surprise.of(scored(answer))
    perplexity, entropy = surprise.perplexity, surprise.entropy
    return ("" if perplexity is None else f" · perplexity {perplexity:.2f}") + (
        "" if entropy is None else f" · mean entropy {entropy:.2f} nats"
    )


def _text(text: str) -> str:
    return escape(sanitise(text), quote=True)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
