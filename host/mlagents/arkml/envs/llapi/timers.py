"""Timers for sections of code, under the names of `mlagents_envs.timers`, which trainers import."""

from __future__ import annotations

import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

TIMER_FORMAT_VERSION = "0.1.0"

P = ParamSpec("P")
T = TypeVar("T")


class TimerNode:
    """A timed section of code: how often it ran, total seconds, and the sections inside it."""

    __slots__ = ("children", "count", "is_parallel", "total")

    def __init__(self) -> None:
        self.children: dict[str, TimerNode] = {}
        self.total: float = 0.0
        self.count: int = 0
        self.is_parallel: bool = False

    def get_child(self, name: str) -> TimerNode:
        """Return a section inside this one by name, creating it if needed."""
        return self.children.setdefault(name, TimerNode())

    def add_time(self, elapsed: float) -> None:
        """Count a run of the section that took `elapsed` seconds."""
        self.total += elapsed
        self.count += 1

    def merge(
        self, other: TimerNode, root_name: str | None = None, is_parallel: bool = True
    ) -> None:
        """Add another section to this one, or to its child `root_name` if that is given."""
        node = self.get_child(root_name) if root_name else self
        node.total += other.total
        node.count += other.count
        node.is_parallel |= is_parallel
        for name, child in other.children.items():
            node.get_child(name).merge(child, is_parallel=is_parallel)


class GaugeNode:
    """The latest value of a quantity, its minimum and maximum, and the number of values."""

    __slots__ = ("_set_at", "count", "max_value", "min_value", "value")

    def __init__(self, value: float) -> None:
        self.value = self.min_value = self.max_value = value
        self.count: int = 1
        self._set_at: float = time.time()

    def update(self, new_value: float) -> None:
        """Set the value."""
        self.merge(GaugeNode(new_value))

    def merge(self, other: GaugeNode) -> None:
        """Add the values of another gauge; the later of both latest values is kept."""
        if other._set_at >= self._set_at:
            self.value, self._set_at = other.value, other._set_at
        self.min_value = min(self.min_value, other.min_value)
        self.max_value = max(self.max_value, other.max_value)
        self.count += other.count

    def as_dict(self) -> dict[str, float]:
        """Return the value, its minimum and maximum, and their number."""
        extremes = {"min": self.min_value, "max": self.max_value}
        return {"value": self.value, **extremes, "count": self.count}


class TimerStack:
    """The tree of one thread's timed sections, and its gauges; `stack` has the running sections."""

    __slots__ = ("gauges", "metadata", "root", "stack", "start_time")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all sections and gauges."""
        self.root: TimerNode = TimerNode()
        self.stack: list[TimerNode] = [self.root]
        self.start_time: float = time.perf_counter()
        self.gauges: dict[str, GaugeNode] = {}
        self.metadata: dict[str, str] = {
            "timer_format_version": TIMER_FORMAT_VERSION,
            "start_time_seconds": str(int(time.time())),
            "python_version": sys.version,
            "command_line_arguments": " ".join(sys.argv),
        }

    def push(self, name: str) -> TimerNode:
        """Enter a section within the running one."""
        self.stack.append(self.stack[-1].get_child(name))
        return self.stack[-1]

    def pop(self) -> None:
        """Leave the running section."""
        self.stack.pop()

    def get_root(self) -> TimerNode:
        """Return the root, with the time since the stack was created or reset."""
        self.root.total, self.root.count = time.perf_counter() - self.start_time, 1
        return self.root

    def get_timing_tree(self, node: TimerNode | None = None) -> dict[str, Any]:
        """Return a section as JSON, by default the root with gauges and metadata."""
        tree: dict[str, Any] = {}
        if node is None:
            node = self.get_root()
            tree["name"] = "root"
            if self.gauges:
                tree["gauges"] = {name: gauge.as_dict() for name, gauge in self.gauges.items()}
            self.metadata["end_time_seconds"] = str(int(time.time()))
            tree["metadata"] = self.metadata
        children = {name: self.get_timing_tree(child) for name, child in node.children.items()}
        tree |= {"total": node.total, "count": node.count}
        if node.is_parallel:
            tree["is_parallel"] = True
        tree["self"] = max(0.0, node.total - sum(child["total"] for child in children.values()))
        return {**tree, "children": children} if children else tree

    def set_gauge(self, name: str, value: float) -> None:
        """Set a gauge; NaN is ignored."""
        if not math.isnan(value):
            merge_gauges({name: GaugeNode(value)}, self)

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the metadata of the tree."""
        self.metadata[key] = value


_stacks: dict[int, TimerStack] = {}


def _get_thread_timer() -> TimerStack:
    return _stacks.setdefault(threading.get_ident(), TimerStack())


def get_timer_stack_for_thread(t: threading.Thread) -> TimerStack | None:
    """Return the timers of a thread, None if it has none."""
    return None if t.ident is None else _stacks.get(t.ident)


@contextmanager
def hierarchical_timer(name: str, timer_stack: TimerStack | None = None) -> Iterator[TimerNode]:
    """Time a `with` block as a section within the section that this thread is running."""
    stack = timer_stack or _get_thread_timer()
    node = stack.push(name)
    begun = time.perf_counter()
    try:
        yield node
    finally:
        node.add_time(time.perf_counter() - begun)
        stack.pop()


def timed(func: Callable[P, T]) -> Callable[P, T]:
    """Time all calls of a function as a section with its qualified name."""

    @functools.wraps(func)
    def timing(*args: P.args, **kwargs: P.kwargs) -> T:
        with hierarchical_timer(func.__qualname__):
            return func(*args, **kwargs)

    return timing


def set_gauge(name: str, value: float, timer_stack: TimerStack | None = None) -> None:
    """Set a gauge of this thread; NaN is ignored."""
    (timer_stack or _get_thread_timer()).set_gauge(name, value)


def merge_gauges(gauges: Mapping[str, GaugeNode], timer_stack: TimerStack | None = None) -> None:
    """Add gauges, for example of another thread, to the gauges of this thread."""
    own = (timer_stack or _get_thread_timer()).gauges
    for name, gauge in gauges.items():
        if own.setdefault(name, gauge) is not gauge:
            own[name].merge(gauge)


def add_metadata(key: str, value: str, timer_stack: TimerStack | None = None) -> None:
    """Add a text to the metadata of this thread's tree."""
    (timer_stack or _get_thread_timer()).add_metadata(key, value)


def get_timer_tree(timer_stack: TimerStack | None = None) -> dict[str, Any]:
    """Return this thread's sections as JSON, with gauges and metadata."""
    return (timer_stack or _get_thread_timer()).get_timing_tree()


def get_timer_root(timer_stack: TimerStack | None = None) -> TimerNode:
    """Return the root of this thread's sections."""
    return (timer_stack or _get_thread_timer()).get_root()


def reset_timers(timer_stack: TimerStack | None = None) -> None:
    """Forget the sections and gauges of this thread."""
    (timer_stack or _get_thread_timer()).reset()
