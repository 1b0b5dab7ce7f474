"""The models that answer, each with a backend of its own, and how they come and go.

    lanes = Lanes(make)                    # make(load): the backend for a model
    lanes.want(settings)                   # load what is missing, leave what is not wanted any more
    for lane, event in lanes.drain(): ...  # what they say

One model is one `Lane`; nothing depends on there being one of them or several. Models of this
machine are loaded one after the other, so that each finds out how much memory the others have left
it; servers are asked at once. What is left stays until its answers have ended and what was wanted
in its place is there: a model that cannot be loaded costs nothing that was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from chat_tui.backends.base import Backend
from chat_tui.model import Model, short_names
from chat_tui.settings import Settings, Source
from engine.messages import (
    Ask,
    Cancel,
    Count,
    Counted,
    Died,
    Event,
    Failed,
    Finished,
    Load,
    Loading,
    ModelInfo,
    Overflowed,
    Ready,
    Score,
    Scored,
)

Phase = Literal["absent", "loading", "ready"]


class Lane:
    """One model and the backend that runs it.

    Attributes:
        source: which model it is, or is to become.
        phase: whether there is a model to ask.
        loading: the last word on its way here, while `phase` is "loading".
        info, model: what answers, or did last; None before it is loaded.
        stopped: the backend's process is gone.
        failed: the model that could not be had, where the last load came to nothing.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.source = Source()
        self.phase: Phase = "absent"
        self.loading: Loading | None = None
        self.info: ModelInfo | None = None
        self.model: Model | None = None
        self.stopped = False
        self.failed: Source | None = None
        self._load: Load | None = None
        self._due = False  # wanted, and not yet sent
        self._sent = 0  # loads without an answer
        self._held: tuple[Source, Load] | None = None  # what was there last
        self._asks: set[int] = set()

    @property
    def name(self) -> str:
        if self.info is not None and self._held is not None and self._held[0] == self.source:
            return self.info.name
        return self.source.label

    @property
    def local(self) -> bool:
        return self.source.server is None

    @property
    def idle(self) -> bool:
        """Nothing that it was asked is on its way."""
        return not self._asks

    def send(self, request: Ask | Score | Count | Cancel) -> None:
        if not isinstance(request, Cancel):
            self._asks.add(request.ask)
        self.backend.send(request)

    # Loading.

    def want(self, source: Source, load: Load) -> None:
        """It is to be this model from now on."""
        before, self.source, self._load = self._load, source, load
        if before is None or not load.same_model(before):
            self.revive()
        elif load.threads != before.threads and self.phase != "absent" and not self._due:
            self._send_load()  # it is only told of them

    def revive(self) -> None:
        """Load it, whatever became of it before."""
        self.phase, self.loading, self.stopped, self._due = "loading", None, False, True
        self.failed = None

    @property
    def waits(self) -> bool:
        return self._due

    def begin(self, *, sent: bool = False) -> None:
        """Load it now; `sent` where that was said to the backend already."""
        self._due = False
        if sent:
            self._sent += 1
        else:
            self._send_load()

    def _send_load(self) -> None:
        assert self._load is not None
        self._sent += 1
        self.backend.send(self._load)

    def take(self, event: Event) -> None:
        """What its backend says."""
        match event:
            case Loading():
                if self.phase == "loading" and not self._due:
                    self.loading = event
            case Ready():
                self._sent = max(0, self._sent - 1)
                if not self._sent and not self._due and self._load is not None:
                    self._held = self.source, self._load
                    self.info, self.model = event.info, Model.of(event.info)
                    self.phase, self.loading = "ready", None
            case Failed(ask=None):
                self._sent = max(0, self._sent - 1)
                if not self._sent and not self._due:
                    self._fall_back(kept=event.kept)
            case Died():
                self._sent, self.stopped = 0, True
                self._asks.clear()
                if not self._due:
                    self._fall_back(kept=False)
            case Finished() | Failed() | Overflowed() | Scored() | Counted():
                self._asks.discard(event.ask or 0)

    def _fall_back(self, *, kept: bool) -> None:
        self.failed = self.source if self.phase == "loading" else None
        self.phase, self.loading = "absent", None
        if self._held is not None:
            self.source, self._load = self._held
            self.phase = "ready" if kept else "absent"


class Lanes:
    """Those that are wanted, in the order of their panes; and those that were left."""

    def __init__(self, make: Callable[[Load], Backend]) -> None:
        self._make = make
        self._wanted: list[Lane] = []
        self._left: list[Lane] = []

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._wanted)

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def first(self) -> Lane:
        return self._wanted[0]

    @property
    def phase(self) -> Phase:
        """Of all of them: "ready" where one is, and none is on its way."""
        phases = {lane.phase for lane in self}
        return "loading" if "loading" in phases else "ready" if "ready" in phases else "absent"

    @property
    def gone(self) -> bool:
        """One is not there and not on its way."""
        return any(lane.phase == "absent" for lane in self)

    def at(self, source: Source) -> Lane | None:
        """The lane of a model that is ready."""
        ready = (lane for lane in self if lane.phase == "ready")
        return next((lane for lane in ready if lane.source == source), None)

    def of(self, model: Model) -> Lane | None:
        """Where this model's token ids are understood; its own lane before any other."""
        ready = [lane for lane in self if lane.phase == "ready" and lane.model is not None]
        same = [lane for lane in ready if lane.model == model]
        alike = [lane for lane in ready if lane.model and lane.model.speaks_with(model)]
        return next(iter([*same, *alike]), None)

    def name(self, lane: Lane) -> str:
        """Of one of them; where there are several, as short as tells it from the others."""
        if len(self) == 1:
            return lane.info.title if lane.info and lane.info.name == lane.name else lane.name
        models = {each: replace(each.source.stand_in, name=each.name) for each in {*self, lane}}
        return short_names(models.values())[models[lane]]

    def want(self, settings: Settings, *, sent: bool = False) -> None:
        """Have the models that the settings ask for, and no others.

        Args:
            sent: the first one's `Load` has been sent to its backend already.
        """
        loads = settings.loads()
        there = {lane.source: lane for lane in [*self._left, *self._wanted]}
        # A process that has torch in it loads another model sooner than a new one.
        spare = [lane for lane in self._wanted if lane.local and lane.source not in loads]
        wanted = []
        for source, load in loads.items():
            lane = there.get(source)
            if lane is None and spare and source.server is None:
                lane = spare.pop(0)
            if lane is None:
                lane = Lane(self._make(load))
            lane.want(source, load)
            wanted.append(lane)
        self._left = [lane for lane in [*self._left, *self._wanted] if lane not in wanted]
        self._wanted = wanted
        if sent:
            self.first.begin(sent=True)
        self._settle()

    def revive(self) -> None:
        """Load again what is not there."""
        for lane in self:
            if lane.phase == "absent":
                lane.revive()
        self._settle()

    def drain(self) -> Iterator[tuple[Lane, Event]]:
        """What they have to say, each after its lane has heard it."""
        for lane in [*self._left, *self._wanted]:
            for event in lane.backend.drain():
                lane.take(event)
                yield lane, event
        self._settle()

    def close(self) -> None:
        """End all backends."""
        for lane in [*self._left, *self._wanted]:
            lane.backend.close()

    def _settle(self) -> None:
        """Begin the loads that can begin now; close what nobody needs any more."""
        for lane in self:
            loads_here = (o for o in self if o.local and o.phase == "loading" and not o.waits)
            if lane.waits and not (lane.local and any(loads_here)):
                lane.begin()
        if all(lane.phase == "ready" for lane in self):
            for lane in [lane for lane in self._left if lane.idle]:
                self._left.remove(lane)
                lane.backend.close()
