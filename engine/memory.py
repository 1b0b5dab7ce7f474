"""How much memory there is, so that a model that does not fit is refused before it is loaded.

require_memory("model.gguf", needed_bytes, torch.device("cpu"))
total_memory()                       # bytes of this machine or container, None if unknown
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from engine.errors import ModelDoesNotFitError

_RESERVE = 0.05
"""Share of the free memory that is left to others."""


def require_memory(what: str, needed: int, device: torch.device) -> None:
    """Raises ModelDoesNotFitError where `needed` bytes are more than what is free on `device`."""
    free = free_memory(device)
    if free is not None and needed > free * (1 - _RESERVE):
        raise ModelDoesNotFitError(
            f"{what} does not fit into memory: it needs about {_shown(needed)} and"
            f" {_shown(free)} are free; choose a smaller or more strongly quantised model."
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that a program can still take on `device`; None where that cannot be told."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    found = [_meminfo("MemAvailable") or _macos_free(), _container_free()]
    known = [size for size in found if size is not None]
    return min(known) if known else None


def return_freed() -> None:
    """Have the C library give freed memory back to the system, where it is one that keeps it.

    glibc does so for the many arrays of some MB that unpacking weights takes: after SmolLM2-135M it
    held 430 MB that nothing used.
    """
    trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)


def release_mapped(tensors: Iterable[Tensor]) -> None:
    """Give the pages back that were read of tensors that are mapped from a file and were never
    written to. They count as this program's memory until the system needs them, and can be read
    again.

    Never to be called with other tensors: theirs would be emptied.
    """
    if sys.platform != "linux":
        return
    page = mmap.PAGESIZE
    for tensor in tensors:
        # Whole pages only: what shares the first and the last is somebody else's.
        start = -(-tensor.data_ptr() // page) * page
        end = (tensor.data_ptr() + tensor.nbytes) // page * page
        if end > start:
            _madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def _madvise(*arguments: object) -> None:
    getattr(_C_LIBRARY, "madvise", lambda *_: None)(*arguments)


_C_LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None


def total_memory() -> int | None:
    """Bytes of main memory; None where that cannot be told."""
    limit = _container_limit()
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return limit
    return total if limit is None else min(total, limit)


def _meminfo(key: str) -> int | None:
    """Linux's own estimate of what is free without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _macos_free() -> int | None:
    """What is free, or was not touched for a while."""
    try:
        done = subprocess.run(["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return vm_stat_free(done.stdout)


def vm_stat_free(text: str) -> int | None:
    """Bytes, from what macOS's `vm_stat` prints; None where it is something else."""
    page = re.search(r"page size of (\d+) bytes", text)
    pages = re.findall(r"^Pages (?:free|inactive):\s+(\d+)\.", text, re.MULTILINE)
    return int(page[1]) * sum(map(int, pages)) if page and len(pages) == 2 else None


_CGROUP = Path("/sys/fs/cgroup")


def _container_limit() -> int | None:
    return _number(_CGROUP / "memory.max")


def _container_free() -> int | None:
    limit, used = _container_limit(), _number(_CGROUP / "memory.current")
    if limit is None or used is None:
        return None
    # The page cache counts as used and is given back when it is asked for.
    try:
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
        cached = {key: int(size) for key, size in (line.split() for line in lines)}
        used -= cached.get("inactive_file", 0) + cached.get("active_file", 0)
    except (OSError, ValueError):
        pass
    return max(0, limit - used)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max": no limit
        return None


def _shown(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
