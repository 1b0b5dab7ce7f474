"""What a CUDA graph is to a GPU, for a CPU: operations are recorded once and then done again, on
the same tensors, without the Python that asked for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten

LOOKS_AT_VALUES = {
    aten.item.default: "a value is read on the host",
    aten._local_scalar_dense.default: "a value is read on the host",
    aten.nonzero.default: "a size depends on values",
    aten.lift_fresh.default: "numbers come from the host",
}


class CaptureError(RuntimeError):
    pass


class Tape:
    """A `Capture`. Counts what it captured and what it replayed."""

    failure = ""

    def __init__(self) -> None:
        self.captured = 0
        self.replayed = 0

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        recording = _Recording()
        with recording:
            run()
        self.captured += 1
        ran = True  # a GPU would only have noted it down

        def replay() -> None:
            nonlocal ran
            if not ran:
                recording.replay()
                self.replayed += 1
            ran = False

        return replay


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self._done: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in LOOKS_AT_VALUES:
            raise CaptureError(f"{func}: {LOOKS_AT_VALUES[func]}")
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self._done.append((func, args, kwargs, out))
        return out

    def replay(self) -> None:
        made: dict[int, Tensor] = {}

        def now(value: Any) -> Any:
            return made.get(id(value), value) if isinstance(value, Tensor) else value

        for func, args, kwargs, out in self._done:
            again = func(*tree_map(now, args), **tree_map(now, kwargs))
            for before, after in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(before, Tensor):
                    made[id(before)] = after
