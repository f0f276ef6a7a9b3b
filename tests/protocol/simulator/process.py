"""A worker process: the tasks it works at, its drives, and what it holds in memory of lanes."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from .drive import Drive
from .log import Lane, Result, Steps
from .views import LaneView, RunView

if TYPE_CHECKING:
    from .world import World


class Task:
    """A task under way; its drive once the lane is open."""

    def __init__(self, process: Process, lane: Lane, result: Result | None) -> None:
        self.lane = lane
        self.drive: Drive | None = None
        self.steps = process.drive(self, result)

    @property
    def can_go(self) -> bool:
        """Whether it waits for nothing."""
        return self.drive is None or self.drive.can_go


class Process:
    """Its tasks and what they share. It dies by being forgotten."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tasks: list[Task] = []
        self._drives: dict[Lane, Drive] = {}
        self._left: dict[Lane, LaneView] = {}
        self._run_view: RunView | None = None

    def take_up(self, lane: Lane) -> None:
        """Work at a lane's task: all of the lane is read, or the drive it has looks again."""
        drive = self._drives.get(lane)
        if drive is not None:
            drive.look_again()
        else:
            self._left.pop(lane, None)
            self._begin(lane, None)

    def deliver(self, lane: Lane, result: Result) -> None:
        """Bring a remote result to its lane."""
        drive = self._drives.get(lane)
        if drive is not None:
            drive.deliver(result)
        else:
            self._begin(lane, result)

    def step(self, task: Task) -> None:
        """Let a task go on to its next moment."""
        try:
            next(task.steps)
        except StopIteration:
            self.tasks.remove(task)

    def fail(self, task: Task) -> None:
        """The server cannot be reached: the drive ends as it stands. Who handed something in begins anew."""
        self.tasks.remove(task)
        drive = task.drive
        if drive is not None and self._drives.get(task.lane) is drive:
            del self._drives[task.lane]
            for result in drive.handed_in:
                self.deliver(task.lane, result)

    def drive(self, task: Task, result: Result | None) -> Steps:
        """Open the task's lane, and drive it until nothing more can be done here."""
        lane = task.lane
        view = yield from self._open(lane)
        drive = task.drive = Drive(self.world, view)
        if result is not None:
            drive.deliver(result)
        self._drives.setdefault(lane, drive)
        yield from drive.run()
        if not drive.view.execution.is_finished:
            self._left[lane] = drive.view
        if self._drives.get(lane) is drive:
            del self._drives[lane]

    def _begin(self, lane: Lane, result: Result | None) -> None:
        self.tasks.append(Task(self, lane, result))

    def _open(self, lane: Lane) -> Generator[None, None, LaneView]:
        left = self._left.pop(lane, None)
        if left is not None and (yield from left.catch_up()):
            return left
        if self._run_view is None:
            self._run_view = RunView(self.world)
            yield from self._run_view.catch_up()
        return (yield from LaneView.open(self._run_view, lane))
