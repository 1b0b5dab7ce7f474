"""The C files of this folder, compiled for this machine and loaded, once per process.

    native = load()
    if native is None:
        reason()                # "no C compiler: cc, gcc and clang were not found"

The result lies in the cache folder, named by all that it depends on: the source, the compiler and
its flags, and the processor, since homes are shared between machines. Triton does the same for
GPUs. `CHAT_TUI_NATIVE=0` leaves everything to PyTorch.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError
from engine.paths import cache_dir, private_folder

FOLDER = Path(__file__).parent

# -O3 compiles ten times as long for the same speed. Contracting a * b + c to one instruction is
# what the arithmetic is made for; the other two let comparisons and roots be vectors.
_FLAGS = (
    *("-O2", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC", "-pthread"),
)

_TARGETS: tuple[tuple[str, ...], ...] = (("-march=native",), ("-mcpu=native",), ())
"""What a compiler may call "for this machine"; Clang on ARM knows the second."""

COMPILERS = ("cc", "gcc", "clang")
TIMEOUT = 120
"""Seconds; a compilation takes 3."""


@dataclass(frozen=True)
class Native:
    """The compiled step."""

    dll: ctypes.CDLL
    lanes: int
    """Floats in a vector: 16 with AVX-512, 8 with AVX, 4 elsewhere. Blocks of weights are as
    wide."""
    chunk_keys: int
    """Keys that a step attends to at a time: each chunk leaves a partial result."""
    block_keys: int
    """Keys that a prompt attends to at a time: room for them is in whole blocks."""


class _NoNativeError(Exception):
    """The message says why."""


_LOADING = threading.Lock()


def _found() -> Native | str:
    """The compiled step, or why there is none."""
    if os.environ.get("CHAT_TUI_NATIVE") == "0":
        return "CHAT_TUI_NATIVE is 0"
    with _LOADING:
        return _loaded()


@functools.cache
def _loaded() -> Native | str:
    try:
        return open_library(build(private_folder(cache_dir() / "native")))
    except (_NoNativeError, EngineError, OSError) as error:
        return str(error).splitlines()[0]


def load() -> Native | None:
    """The compiled step; None where there is none, which `reason` explains. The first call may
    compile for some seconds."""
    found = _found()
    return found if isinstance(found, Native) else None


def reason() -> str:
    """Why `load` finds nothing, or ""."""
    found = _found()
    return found if isinstance(found, str) else ""


def lanes() -> int:
    """Of the library that `load` finds; 0 where it finds none."""
    native = load()
    return native.lanes if native else 0


def open_library(path: Path) -> Native:
    dll = ctypes.CDLL(str(path))
    dll.step.restype = None
    return Native(dll, dll.lanes(), dll.chunk_keys(), dll.block_keys())


def build(folder: Path, flags: tuple[str, ...] | None = None) -> Path:
    """Compile `step.c` into `folder`, if it is not there yet, for the machine itself or with
    `flags` instead. Raises _NoNativeError where that cannot be done."""
    if platform.system() not in ("Linux", "Darwin"):
        raise _NoNativeError(f"not written for {platform.system()}")
    compiler = _compiler()
    sources = [file.read_bytes() for file in sorted(FOLDER.glob("*.[ch]"))]
    what = (sources, compiler, _processor(), *_FLAGS, *(flags or ()))
    digest = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
    place = folder / f"{digest}.so"
    if not place.exists():
        _compile(compiler, place, _TARGETS if flags is None else (flags,))
    return place


def _compiler() -> str:
    named = os.environ.get("CC")
    for name in (named,) if named else COMPILERS:
        if found := shutil.which(name):
            return found
    missing = (
        f"CC is {named}, which" if named else f"{', '.join(COMPILERS[:-1])} and {COMPILERS[-1]}"
    )
    raise _NoNativeError(f"no C compiler: {missing} {'was' if named else 'were'} not found")


def _processor() -> str:
    """What "this machine" is to a compiler."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return platform.machine() + "".join(
        next((line for line in lines if line.startswith(name)), "") for name in wanted
    )


def _compile(compiler: str, place: Path, targets: tuple[tuple[str, ...], ...]) -> None:
    handle, name = tempfile.mkstemp(".part", place.stem, place.parent)
    os.close(handle)
    part = Path(name)
    try:
        for target in targets:
            files = map(str, sorted(FOLDER.glob("*.c")))
            command = [compiler, *_FLAGS, *target, *files, "-o", str(part), "-lm"]
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT
            )
            if done.returncode == 0:
                os.replace(part, place)
                return
        wrong = (line for line in done.stderr.splitlines() if "error" in line)
        raise _NoNativeError(f"{compiler} fails: {next(wrong, 'it says nothing')[:200]}")
    except subprocess.TimeoutExpired:
        raise _NoNativeError(f"{compiler} takes more than {TIMEOUT} s") from None
    finally:
        part.unlink(missing_ok=True)
