"""Formats the figures as tables, next to the limits."""
import math
from statistics import median
from typing import NamedTuple

DASH = "–"
# With fewer busy cores, the threads took turns and did not contend.
BUSY_CORES = 1.25
TOOK_TURNS = "does not count: the threads took turns"


class Row(NamedTuple):
    instructions: int  # ours, at most
    faster: float  # than PyTorch, at least


ROWS = {
    "small": Row(260, 12),
    "large": Row(270, 12),
    "lifo": Row(360, 10),
    "random": Row(400, 12),
    "xstream": Row(600, 8),
    "shared": Row(300, 8),
    "stats": Row(700, 1),
}
FASTER_ON_TRACES = 10
# What `policy:compact` may cost, relative to the default: in an operation, and in a whole job.
COMPACT_ROWS = ["small", "large", "lifo", "random", "xstream"]
COMPACT_AT_MOST = 1.25
COMPACT_AT_MOST_IN_JOBS = 1.3


class Scaling(NamedTuple):
    text: str
    scenario: str
    threads: int
    throughput: float  # against one thread, at least


SCALINGS = [
    Scaling("two threads, each on a stream of its own", "small", 2, 1.7),
    Scaling("four threads on one stream", "shared", 4, 0.8),
]
# What to measure for the first two tables.
THREADS = {scenario: [1, *(s.threads for s in SCALINGS if s.scenario == scenario)] for scenario in ROWS}


class Part(NamedTuple):
    """A table, how many of its rows have a limit, and how many of those meet it."""

    lines: list
    met: int = 0
    limits: int = 0


def operations(benches, counts, loops):
    """The cost of an operation on one thread. An argument is empty if that was not measured. Our instructions are not
    shown: benches/instructions.txt has them."""
    lines = table("| operation | PyTorch ns | our ns | faster | at least "
                  "| PyTorch instructions | ours at most | result |")
    verdicts = []
    for scenario, row in ROWS.items():
        medians = [[line.ns for line in lines] for lines in benches[scenario, 1]] if benches else [[], []]
        faster = min(medians[0]) / min(medians[1]) if benches else None
        pytorch, ours = counts.get(scenario, (None, None))
        verdicts.append(verdict([
            ("instructions", None if ours is None else round(ours) <= row.instructions),
            ("time", None if faster is None else faster >= row.faster),
        ]))
        lines.append(f"| {scenario} | {spread(medians[0])} | {spread(medians[1])} | {times(faster)} | {row.faster}× "
                     f"| {number(pytorch)} | {row.instructions} | {verdicts[-1]} |")
    if loops:
        pytorch, ours, faster = over_jobs(median, loops)
        verdicts.append(verdict([("time", faster >= FASTER_ON_TRACES)]))
        lines.append(f"| traces | {ns(pytorch)} | {ns(ours)} | {times(faster)} | {FASTER_ON_TRACES}× "
                     f"| {DASH} | {DASH} | {verdicts[-1]} |")
    return part(lines, verdicts)


def threads(benches):
    """The total throughput of several threads, relative to one thread."""
    lines = table("| threads | | ns, one thread | ns, all threads | busy cores | throughput | wanted | result |")
    verdicts = []
    for scaling in SCALINGS:
        alone, together = benches[scaling.scenario, 1], benches[scaling.scenario, scaling.threads]
        throughput, figures, counts = scaled(alone.peer, together.peer)
        lines.append(f"| {scaling.text} | PyTorch | {figures} | {DASH} | {'' if counts else TOOK_TURNS} |")
        throughput, figures, counts = scaled(alone.ours, together.ours)
        verdicts.append(verdict([("throughput", throughput >= scaling.throughput)]) if counts else TOOK_TURNS)
        lines.append(f"| | ours | {figures} | ≥ {scaling.throughput} | {verdicts[-1]} |")
    return part(lines, verdicts)


def scaled(alone, together):
    """Returns the throughput, the cells of its row, and whether it counts: of the median round in which the threads
    did not take turns. One thread and several are compared within a round, since the machine's speed changes."""
    rounds = sorted(zip(alone, together), key=lambda both: both[0].ns / both[1].ns)
    busy = [both for both in rounds if both[1].busy_cores >= BUSY_CORES]
    one, all_threads = busy[(len(busy) - 1) // 2] if busy else max(rounds, key=lambda both: both[1].busy_cores)
    throughput = one.ns / all_threads.ns
    cells = f"{ns(one.ns)} | {ns(all_threads.ns)} | {down(all_threads.busy_cores, 2)} | {down(throughput, 2)}"
    return throughput, cells, bool(busy)


def traces(loops, calls):
    """The cost of a call in each recorded trace, with a clock around the loop and with one around each call."""
    lines = table("| trace | calls | PyTorch ns | our ns | faster | PyTorch ns, timed calls | our ns, timed calls "
                  "| faster, timed calls |")
    for name, (number, _) in loops.items():
        cells = [f"{spread(pytorch)} | {spread(ours)} | {times(min(pytorch) / min(ours))}"
                 for _, (pytorch, ours) in [loops[name], calls[name]]]
        lines.append(f"| {name} | {number:,} | {' | '.join(cells)} |")
    for what, of in [("median", median), ("minimum", min)]:
        cells = [f"{ns(pytorch)} | {ns(ours)} | {times(faster)}"
                 for pytorch, ours, faster in [over_jobs(of, loops), over_jobs(of, calls)]]
        lines.append(f"| {what} of each column | | {' | '.join(cells)} |")
    return Part(lines)


def compact(benches, counts, jobs):
    """The cost of `policy:compact`, in operations and in recorded jobs. An argument is empty if that was not
    measured."""
    lines = table("| under `policy:compact` | default ns | compact ns | time | instructions | at most | result |")
    rows = []
    for scenario in COMPACT_ROWS:
        default, ours = ([line.ns for line in lines] for lines in benches[scenario, 1]) if benches else ([], [])
        ratios = {"time": min(ours) / min(default) if benches else None,
                  "instructions": counts[scenario].ours / counts[scenario].peer if counts else None}
        rows.append((scenario, default, ours, ratios, COMPACT_AT_MOST))
    for name, (_, (default, ours)) in jobs.items():
        rows.append((name, default, ours, {"time": min(ours) / min(default)}, COMPACT_AT_MOST_IN_JOBS))
    verdicts = []
    for name, default, ours, ratios, at_most in rows:
        met = [(what, None if ratio is None else ratio <= at_most) for what, ratio in ratios.items()]
        verdicts.append(verdict(met))
        lines.append(f"| {name} | {spread(default)} | {spread(ours)} | {up(ratios['time'])} "
                     f"| {up(ratios.get('instructions'))} | {at_most}× | {verdicts[-1]} |")
    return part(lines, verdicts)


def over_jobs(of, replays):
    """Returns what `of` makes of each column: nanoseconds of both sides, and their ratio."""
    least = [(min(pytorch), min(ours)) for _, (pytorch, ours) in replays.values()]
    return (of(pytorch for pytorch, _ in least), of(ours for _, ours in least),
            of(pytorch / ours for pytorch, ours in least))


def verdict(limits):
    """Formats `limits`: pairs of a name and whether the limit is met, or None if that was not measured."""
    missed = [what for what, met in limits if met is False]
    if missed:
        return f"**not met**: {' and '.join(missed)}"
    return "met" if all(met for _, met in limits) else "met as far as measured"


def part(lines, verdicts):
    return Part(lines, sum(text.startswith("met") for text in verdicts), len(verdicts))


def table(head):
    return [head, "|" + "---|" * (head.count("|") - 1)]


def spread(values):
    """The minimum and the maximum, or one figure if both read the same."""
    least, most = (ns(min(values)), ns(max(values))) if values else (DASH, DASH)
    return least if least == most else f"{least}–{most}"


def ns(value):
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"


def number(value):
    return DASH if value is None else f"{value:.0f}"


def times(value):
    return DASH if value is None else f"{down(value, 1)}×"


def up(value):
    """Rounds up, for the same reason as `down`."""
    return DASH if value is None else f"{math.ceil(value * 100) / 100:.2f}×"


def down(value, digits):
    """Rounds down, so that no figure reads as if it met a limit that it misses."""
    return f"{math.floor(value * 10**digits) / 10**digits:.{digits}f}"
