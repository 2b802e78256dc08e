"""Measures two sides in turn, so that other load on the machine affects them equally."""
import sys
from typing import NamedTuple

from . import sides
from .failure import Failure

# Constant costs, such as the start of the counted function, are in runs of both lengths.
SHORT, LONG = 2_000, 22_000


class Pair(NamedTuple):
    """The same value for both sides: PyTorch's and ours, or ours with its default and with other settings."""

    peer: object
    ours: object


def benches(both, threads_of, effort):
    """Returns the lines of both sides by scenario and number of threads, one per round."""
    found = {(scenario, n): Pair([], []) for scenario, threads in threads_of.items() for n in threads}
    for scenario, threads in threads_of.items():
        tell(f"{scenario}, {effort.rounds} rounds of both")
        for _ in range(effort.rounds):
            for index, side in enumerate(both):
                for line in sides.bench(side, scenario, threads, effort):
                    found[line.scenario, line.threads][index].append(line)
    return found


def counts(both, scenarios):
    """Returns the instructions of an operation by scenario."""
    found = {}
    for scenario in scenarios:
        tell(f"{scenario}, instructions of both")
        found[scenario] = Pair(*(instructions_of(side, scenario) for side in both))
    return found


def instructions_of(side, scenario):
    short, few = sides.count(side, scenario, SHORT)
    long, many = sides.count(side, scenario, LONG)
    if many <= few or long <= short:
        raise Failure(f"{scenario}: {few} operations have {short} instructions, and {many} have {long}: "
                      "nothing was counted")
    return (long - short) / (many - few)


def replays(both, traces, effort, clock, same_work=True):
    """Returns for each trace its number of calls, and nanoseconds per call of both sides, one figure per replay.

    With `same_work`, both sides must end in the same state.
    """
    found = {}
    for name, trace in traces.items():
        tell(f"{name}, {effort.replays} replays of both, a clock {clock.where}")
        times, printed = Pair([], []), set()
        for _ in range(effort.replays):
            for index, side in enumerate(both):
                ns, calls, output = sides.replay(side, trace, clock)
                times[index].append(ns)
                printed.add((calls, output))
        if same_work and len(printed) != 1:
            raise Failure(f"{name}: the sides print different results at the end of the trace, so they did not do "
                          f"the same work: compare\n{lines_to_compare(both, trace, clock)}")
        found[name] = calls, times
    return found


def lines_to_compare(both, trace, clock):
    return "\n".join(" ".join(map(str, side.replay_command(trace, clock))) for side in both)


def tell(text):
    print(text, file=sys.stderr, flush=True)
