"""Server-sent events: bytes as they arrive to the data of each event.

    stream = EventStream()
    for data in stream.feed(chunk): ...      # any cut of the bytes; also inside a character
    for data in stream.close(): ...          # the last event, where no empty line follows it

As tolerant as the format is (WHATWG HTML, "Server-sent events"): LF, CRLF and CR end lines,
comments and unknown fields are skipped, the lines of one event's data are joined. A line has a
bound, since a server that never ends one would otherwise fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_LINE = 8 << 20
"""Bytes of one line, and of one event. The longest honest ones carry a prompt's token ids and
alternatives for each token: far below one MiB."""

DONE = "[DONE]"
"""The data of the event that ends a stream of completions."""


class TooLongError(Exception):
    """A line, or an event, has no end within `MAX_LINE` bytes."""


class EventStream:
    """Takes one stream apart."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self._line = bytearray()  # of a line that has not ended
        self._data: list[bytes] = []  # of an event that has not ended
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of the events that end within `chunk`.

        Raises:
            TooLongError: as soon as the bound is passed; nothing more can be fed.
        """
        after_cr, self._after_cr = self._after_cr, chunk.endswith(b"\r")
        if after_cr:  # CRLF, cut in two
            chunk = chunk.removeprefix(b"\n")
        for piece in chunk.splitlines(keepends=True):  # of bytes: at LF, CR and CRLF alone
            self._line += piece
            if len(self._line) + self._size > self._max_line:
                raise TooLongError
            if piece.endswith((b"\n", b"\r")):
                line = bytes(self._line).rstrip(b"\r\n")
                self._line.clear()
                yield from self._take(line)

    def close(self) -> Iterator[str]:
        """The data of an event that was cut off before the empty line behind it."""
        line = bytes(self._line)
        self._line.clear()
        yield from self._take(line)
        yield from self._dispatch()

    def _take(self, line: bytes) -> Iterator[str]:
        if self._first:
            self._first, line = False, line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            yield from self._dispatch()
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._size += len(value) + 1

    def _dispatch(self) -> Iterator[str]:
        if self._data:
            data = b"\n".join(self._data).decode("utf-8", "replace")
            self._data.clear()
            self._size = 0
            yield data
