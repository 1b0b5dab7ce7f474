"""Token ids, masks and scores as the bytes that the store keeps.

    pack_ints([5, 1042])                 unpack_ints(data)
    pack_scores(answer.scores)           StoredScores([data, ...])

Scores are the bulk of a saved session (ten alternatives for each token), and opening one must not
wait for them: `StoredScores` is a sequence that unpacks itself when it is first looked into. The
format is flat arrays, little-endian; nothing in it can be anything but numbers and bytes.
"""

from __future__ import annotations

import sqlite3
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import overload

from engine.messages import Alternative, TokenScore

_UNKNOWN = -1
"""Stands in the place of a token that has no score; no id is negative."""


def pack_ints(values: Iterable[int]) -> bytes:
    """Whole numbers of 32 bits."""
    return _bytes(array("i", values))


def unpack_ints(data: bytes) -> list[int]:
    return _array("i", data).tolist()


def pack_scores(scores: Sequence[TokenScore | None]) -> bytes:
    """Scores, losslessly: floats take four bytes where four hold them exactly, else eight."""
    known = [score for score in scores if score is not None]
    others = [other for score in known for other in score.alternatives]
    pieces = [score.piece for score in known] + [other.piece for other in others]
    floats = [
        [score.logprob for score in known],
        [score.entropy for score in known],
        [s.sampled_logprob for s in known if s.sampled_logprob is not None],
        [other.logprob for other in others],
    ]
    ints = [
        [_UNKNOWN if score is None else score.token for score in scores],
        [score.rank for score in known],
        [len(score.alternatives) for score in known],
        [int(score.sampled_logprob is not None) for score in known],
        [other.token for other in others],
        [len(piece) for piece in pieces],
    ]
    kind = "f" if all(array("f", row).tolist() == row for row in floats) else "d"
    parts = [pack_ints(row) for row in ints] + [_bytes(array(kind, row)) for row in floats]
    parts.append(b"".join(pieces))
    head = struct.pack(f"<c{len(parts)}I", kind.encode(), *map(len, parts))
    return zlib.compress(head + b"".join(parts), 1)


def unpack_scores(data: bytes) -> list[TokenScore | None]:
    """Raises ValueError, or struct.error, where `data` is not what `pack_scores` makes."""
    data = zlib.decompress(data)
    kind, *lengths = struct.unpack_from("<c11I", data)
    at = struct.calcsize("<c11I")
    parts: list[bytes] = []
    for length in lengths:
        parts.append(data[at : at + length])
        at += length
    tokens, ranks, counts, flags, other_tokens, widths = map(unpack_ints, parts[:6])
    logprobs, entropies, sampled, other_logprobs = (
        _array(kind.decode(), part).tolist() for part in parts[6:10]
    )
    pieces = _cut(parts[10], widths)
    own = pieces[: len(ranks)]
    others = list(map(Alternative, other_tokens, pieces[len(ranks) :], other_logprobs))
    drawn = iter(sampled)
    scores: list[TokenScore | None] = []
    place = first = 0
    for token in tokens:
        if token == _UNKNOWN:
            scores.append(None)
            continue
        last = first + counts[place]
        scores.append(
            TokenScore(
                token,
                own[place],
                logprobs[place],
                next(drawn) if flags[place] else None,
                entropies[place],
                ranks[place],
                tuple(others[first:last]),
            )
        )
        place, first = place + 1, last
    return scores


class StoredScores(Sequence[TokenScore | None]):
    """An answer's scores that are read and unpacked when they are first needed."""

    def __init__(self, read: Callable[[], Iterable[bytes]], length: int) -> None:
        self._read = read
        self._length = length
        self._scores: list[TokenScore | None] | None = None

    def _all(self) -> list[TokenScore | None]:
        if self._scores is None:
            found: list[TokenScore | None] = []
            # What cannot be read any more (a damaged file) is not known: the answer still is.
            with suppress(sqlite3.Error, zlib.error, struct.error, ValueError, IndexError):
                for chunk in self._read():
                    found += unpack_scores(chunk)
            missing = self._length - len(found)
            self._scores = [*found[: self._length], *[None] * missing]
        return self._scores

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> TokenScore | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TokenScore | None]: ...
    def __getitem__(self, index: int | slice) -> TokenScore | Sequence[TokenScore | None] | None:
        return self._all()[index]

    def __iter__(self) -> Iterator[TokenScore | None]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]


def _bytes(values: array[int] | array[float]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _array(kind: str, data: bytes) -> array[int]:
    values: array[int] = array(kind)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _cut(data: bytes, widths: Sequence[int]) -> list[bytes]:
    pieces, at = [], 0
    for width in widths:
        pieces.append(data[at : at + width])
        at += width
    return pieces
