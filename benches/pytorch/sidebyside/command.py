"""Runs the program's steps in order."""
import argparse
import os
import pathlib
import sys
import textwrap

from . import document, fetch, machine, measure, tables
from .build import HERE, ROOT, build
from .failure import Failure
from .sides import CALLS, LOOP, Effort, Ours, PyTorch
from .traces import RECORDED, traces

FULL = Effort(rounds=5, repetitions=3, milliseconds=100, replays=15)
QUICK = Effort(rounds=2, repetitions=3, milliseconds=20, replays=5)
DOCUMENT = ROOT / "docs/BENCHMARKS.md"
# A device with room for every job.
ROOMY = ("--capacity", "200GiB")


def main():
    options = parser().parse_args()
    try:
        side_by_side(options)
    except Failure as error:
        return complain(error)
    except OSError as error:
        return complain(f"{error.filename or 'the system'}: {error.strerror}")
    except KeyboardInterrupt:
        return complain("stopped; what was downloaded and built stays in the cache")
    return 0


def complain(what):
    print(f"{HERE.relative_to(ROOT)}/run: {what}", file=sys.stderr)
    return 1


def parser():
    parser = argparse.ArgumentParser(
        prog="benches/pytorch/run",
        description="Measures PyTorch's own C++ allocator and ours in turn on a simulated device, and writes the "
                    "tables into docs/BENCHMARKS.md. The first run downloads PyTorch (540 MB).",
        epilog="TORCH_WHEEL=FILE uses that wheel, and the two wheels with CUDA's headers next to it. Nothing is "
               "downloaded then.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter measurements, so rough figures")
    parser.add_argument("--instructions-only", action="store_true",
                        help="count instructions, which are the same in every run; measure no times and write nothing")
    parser.add_argument("--no-write", action="store_true", help="print the tables, but leave the document as it is")
    parser.add_argument("--traces", type=pathlib.Path, metavar="FOLDER",
                        help="replay the traces in this folder, too: NAME.trace.zst")
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / "target/pytorch-benchmark", metavar="FOLDER",
                        help="where downloads and builds go, except for our own program "
                             "[default: target/pytorch-benchmark]")
    return parser


def side_by_side(options):
    machine.require_platform()
    machine.require_programs()
    cache = options.cache.absolute()
    cache.mkdir(parents=True, exist_ok=True)
    counting = machine.can_count()
    if options.instructions_only and not counting:
        raise Failure("needs valgrind to count instructions; on Debian: apt-get install valgrind")
    writes = not (options.no_write or options.instructions_only)
    if writes:
        document.with_part(DOCUMENT, "")  # fail now, not after minutes
    jobs = {} if options.instructions_only else traces(ROOT, cache, RECORDED)
    if jobs and options.traces:
        jobs |= traces(options.traces, cache, ["."])
    built = build(fetch.fetch(cache), cache)
    both = measure.Pair(PyTorch(built.bench, built.replay), Ours(built.accel))
    policies = measure.Pair(Ours(built.accel, (), ROOMY), Ours(built.accel, ("--conf", "policy:compact"), ROOMY))

    counts = measure.counts(both, tables.ROWS) if counting else {}
    of_policies = measure.counts(policies, tables.COMPACT_ROWS) if counting else {}
    if options.instructions_only:
        parts = [tables.operations({}, counts, {}), tables.compact({}, of_policies, {})]
        return print(text(parts, notes(counting=True)))
    effort = QUICK if options.quick else FULL
    benches = measure.benches(both, tables.THREADS, effort)
    loops, calls = (measure.replays(both, jobs, effort, clock) for clock in [LOOP, CALLS])
    compact = measure.benches(policies, {scenario: [1] for scenario in tables.COMPACT_ROWS}, effort)
    compact_jobs = measure.replays(policies, jobs, effort, LOOP, same_work=False)

    parts = [tables.operations(benches, counts, loops), tables.threads(benches), tables.traces(loops, calls),
             tables.compact(compact, of_policies, compact_jobs)]
    result = text(parts, notes(counting, effort, options.quick))
    print(result)
    if writes:
        document.write(DOCUMENT, result)
        measure.tell(f"written into {os.path.relpath(DOCUMENT)}")


def notes(counting, effort=None, quick=False):
    """What a reader of the tables must know about the run. `effort` is given if times were measured."""
    yield f"PyTorch {fetch.TORCH.version} and this repository at {machine.commit(ROOT)}; {machine.description(ROOT)}."
    if effort:
        yield f"Both sides in turn: {effort.rounds} rounds of an operation, each the median of {effort.repetitions} "\
              f"repetitions of {effort.milliseconds} ms, and {effort.replays} replays of a trace."
    yield "A simulated device, so only times of the host: *not run on hardware*."
    if quick:
        yield "A quick run, so rough figures."
    if not counting:
        yield "Without valgrind, so no instruction counts."


def text(parts, notes):
    """The text to print, which is also the generated part of the document."""
    met = f"**{sum(part.met for part in parts)} of {sum(part.limits for part in parts)} limits are met.**"
    about = textwrap.wrap(" ".join([met, *notes]), 120)
    return "\n\n".join("\n".join(lines) for lines in [about, *(part.lines for part in parts)])
