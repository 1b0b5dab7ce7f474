"""Downloads on stderr: a bar on a terminal, a line per quarter in a log, nothing where nothing is
fetched.

    progress = DownloadProgress()
    progress.show("Downloading SmolLM2, 98 MB", done=10, total=98)
    progress.close()
"""

from __future__ import annotations

import sys


class DownloadProgress:
    WIDTH = 24

    def __init__(self) -> None:
        self._what = ""
        self._quarter = -1
        self._bar = sys.stderr.isatty()

    def show(self, what: str, done: int, total: int) -> None:
        if not total:
            return
        part = min(1.0, done / total)
        if self._bar:
            full = round(part * self.WIDTH)
            bar = "█" * full + "░" * (self.WIDTH - full)
            sys.stderr.write(f"\r\x1b[K{bar} {part:4.0%}  {what}")
        elif (what, int(part * 4)) != (self._what, self._quarter):
            sys.stderr.write(f"{part:4.0%}  {what}\n")
        self._what, self._quarter = what, int(part * 4)
        sys.stderr.flush()

    def close(self) -> None:
        if self._bar and self._what:
            sys.stderr.write("\n")
            self._what = ""
