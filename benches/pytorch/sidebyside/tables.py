"""The figures as tables, beside what is wanted."""
import math
from statistics import median
from typing import NamedTuple

DASH = "–"
# With fewer busy, threads took turns, and none was in another's way.
BUSY_CORES = 1.25
TOOK_TURNS = "does not count: the threads took turns"


class Row(NamedTuple):
    text: str
    instructions: int  # ours, at most
    faster: float  # than PyTorch, at least


ROWS = {
    "small": Row("small: alloc + free 512 B", 260, 12),
    "large": Row("large: alloc + free 4 MiB", 270, 12),
    "lifo": Row("lifo: 64 deep, random sizes, a pair", 360, 10),
    "random": Row("random: 4096 live, replace one", 400, 12),
    "xstream": Row("xstream: alloc, record, free", 600, 8),
    "shared": Row("shared: alloc + free 512 B, on the stream that threads share", 300, 8),
    "stats": Row("stats: read all", 700, 1),
}
FASTER_ON_TRACES = 7


class Scaling(NamedTuple):
    text: str
    scenario: str
    threads: int
    throughput: float  # against one thread, at least


SCALINGS = [
    Scaling("two threads, each on a stream of its own", "small", 2, 1.7),
    Scaling("four threads on one stream", "shared", 4, 0.8),
]
# What is to be measured for both tables.
THREADS = {scenario: [1, *(s.threads for s in SCALINGS if s.scenario == scenario)] for scenario in ROWS}


class Part(NamedTuple):
    """A table, how many of its rows have a limit, and how many of them keep it."""

    lines: list
    met: int = 0
    limits: int = 0


def operations(benches, counts, replays):
    """What an operation takes on one thread; `counts` is empty where none could be made, as are `benches` and `replays`."""
    lines = table("| operation | PyTorch ns | PyTorch instructions | our ns | our instructions | faster | wanted: instructions "
                  "| wanted: faster | result |")
    verdicts = []
    for scenario, row in ROWS.items():
        medians = [[line.ns for line in lines] for lines in benches[scenario, 1]] if benches else [[], []]
        faster = min(medians[0]) / min(medians[1]) if benches else None
        pytorch, ours = counts.get(scenario, (None, None))
        verdicts.append(verdict([
            ("instructions", None if ours is None else round(ours) <= row.instructions),
            ("time", None if faster is None else faster >= row.faster),
        ]))
        lines.append(f"| {row.text} | {spread(medians[0])} | {number(pytorch)} | {spread(medians[1])} | {number(ours)} "
                     f"| {times(faster)} | ≤ {row.instructions} | ≥ {row.faster}× | {verdicts[-1]} |")
    if replays:
        pytorch, ours, faster = medians_of(replays)
        verdicts.append(verdict([("time", faster >= FASTER_ON_TRACES)]))
        lines.append(f"| real traces, a call: the median of {len(replays)} | {ns(pytorch)} | {DASH} | {ns(ours)} | {DASH} "
                     f"| {times(faster)} | {DASH} | ≥ {FASTER_ON_TRACES}× | {verdicts[-1]} |")
    return part(lines, verdicts)


def threads(benches):
    """The total throughput of threads, against one thread."""
    lines = table("| threads | | ns, one thread | ns, all threads | busy cores | throughput | wanted | result |")
    verdicts = []
    for scaling in SCALINGS:
        alone, together = benches[scaling.scenario, 1], benches[scaling.scenario, scaling.threads]
        throughput, figures, counts = scaled(alone.pytorch, together.pytorch)
        lines.append(f"| {scaling.text} | PyTorch | {figures} | {DASH} | {'' if counts else TOOK_TURNS} |")
        throughput, figures, counts = scaled(alone.ours, together.ours)
        verdicts.append(verdict([("throughput", throughput >= scaling.throughput)]) if counts else TOOK_TURNS)
        lines.append(f"| | ours | {figures} | ≥ {scaling.throughput} | {verdicts[-1]} |")
    return part(lines, verdicts)


def scaled(alone, together):
    """Throughput, it with what it comes from as cells, and whether it counts."""
    least = min(line.ns for line in alone)
    busiest = max(together, key=lambda line: line.busy_cores)  # not the fastest: it may be so as threads took turns
    throughput = least / busiest.ns
    cells = f"{ns(least)} | {ns(busiest.ns)} | {down(busiest.busy_cores, 2)} | {down(throughput, 2)}"
    return throughput, cells, busiest.busy_cores >= BUSY_CORES


def traces(replays):
    """A call in each recorded trace."""
    lines = table("| trace | calls | PyTorch ns | our ns | faster |")
    for name, (calls, (pytorch, ours)) in replays.items():
        lines.append(f"| {name} | {calls:,} | {spread(pytorch)} | {spread(ours)} | {times(min(pytorch) / min(ours))} |")
    pytorch, ours, faster = medians_of(replays)
    lines.append(f"| median of each column | | {ns(pytorch)} | {ns(ours)} | {times(faster)} |")
    return Part(lines)


def medians_of(replays):
    least = [(min(pytorch), min(ours)) for _, (pytorch, ours) in replays.values()]
    return (median(pytorch for pytorch, _ in least), median(ours for _, ours in least),
            median(pytorch / ours for pytorch, ours in least))


def verdict(limits):
    """`limits`: what each is of, and whether it is kept; None where it was not measured."""
    broken = [what for what, kept in limits if kept is False]
    if broken:
        return f"**not met**: {' and '.join(broken)}"
    return "met" if all(kept for _, kept in limits) else "met as far as measured"


def part(lines, verdicts):
    return Part(lines, sum(text.startswith("met") for text in verdicts), len(verdicts))


def table(head):
    return [head, "|" + "---|" * (head.count("|") - 1)]


def spread(values):
    """The least, and the most where it reads otherwise."""
    least, most = (ns(min(values)), ns(max(values))) if values else (DASH, DASH)
    return least if least == most else f"{least}–{most}"


def ns(value):
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"


def number(value):
    return DASH if value is None else f"{value:.0f}"


def times(value):
    return DASH if value is None else f"{down(value, 1)}×"


def down(value, digits):
    """Rounded down, so that no figure reads as if it kept a limit that it breaks."""
    return f"{math.floor(value * 10**digits) / 10**digits:.{digits}f}"
