"""Parses the output of both sides' programs."""
import re
from typing import NamedTuple

from .failure import Failure


class Figures(NamedTuple):
    """A line of benchmark output. `ns` is wall time per operation of all threads, the median of the repetitions."""

    scenario: str
    threads: int
    ns: float
    least: float
    most: float
    cpu_ns: float
    thread_ns: float
    device_allocs: int
    operations: int

    @property
    def busy_cores(self):
        return self.cpu_ns / self.ns


def bench_lines(text):
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [bench_line(line) for line in lines]


def bench_line(line):
    kinds = Figures.__annotations__.values()
    words = line.split()
    try:
        if len(words) != len(kinds):
            raise ValueError
        return Figures(*(kind(word) for kind, word in zip(kinds, words)))
    except ValueError:
        raise Failure(f"not a line of benchmark output: {line!r}") from None


def counted_operations(text):
    """Parses `SCENARIO ops N`."""
    return int(only(r"^\w+ ops (\d+)$", text, "how many operations were counted"))


def instructions(text):
    """Parses the last lines of callgrind."""
    return int(only(r"^==\d+== I\s+refs:\s+([\d,]+)$", text, "how many instructions there were").replace(",", ""))


def replay_time(text, unit):
    """Parses `UNIT TOTAL ops N`. Returns nanoseconds per call, and the number of calls."""
    total, calls = only(rf"^{unit} (\d+ ops \d+)$", text, "how long the replay took").split(" ops ")
    if calls == "0":
        raise Failure("the trace has no call to measure")
    return int(total) / int(calls), int(calls)


def only(pattern, text, what):
    found = re.findall(pattern, text, re.MULTILINE)
    if len(found) != 1:
        raise Failure(f"the output does not say {what}:\n{text.strip()[-500:]}")
    return found[0]
