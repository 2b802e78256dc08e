"""Runs the programs of each side."""
import os
from typing import NamedTuple

from .failure import output_of
from .outputs import bench_lines, counted_operations, instructions, replay_time

# In seconds: enough for the longest program on a slow, shared machine.
TIMEOUT = 900
# Settings of the allocators, which are removed because they would have to be equal.
SETTINGS = [
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "ACCELERATOR_ALLOC_CONF",
]
# On both sides, one function runs exactly the operations to count.
VALGRIND = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*bench::counted*",
            "--callgrind-out-file=/dev/null"]


class Effort(NamedTuple):
    rounds: int
    repetitions: int
    milliseconds: int
    replays: int  # more than rounds, since a loop over a trace takes only a few milliseconds


class Clock(NamedTuple):
    """Where a replay reads the clock."""

    where: str
    unit: str  # what both sides call the time
    pytorch: list  # options of `torch_replay`
    ours: list  # options of `accel replay`
    shows_state: bool  # whether both sides print their state at the end


LOOP = Clock("around the loop", "loop_ns", ["-T"], ["--backend", "sim", "--time"], False)
CALLS = Clock("around each call", "time_ns", ["-t"], ["--plain", "--time-calls"], True)


class PyTorch(NamedTuple):
    bench_program: object
    replay_program: object

    def bench_command(self, scenario, threads, effort):
        return [self.bench_program, "-r", effort.repetitions, "-m", effort.milliseconds, "-t", threads, scenario]

    def counted_command(self, scenario, operations):
        return [self.bench_program, "-c", scenario, operations]

    def replay_command(self, trace, clock):
        return [self.replay_program, *clock.pytorch, trace]


class Ours(NamedTuple):
    accel: object
    settings: tuple = ()  # options of `accel`
    device: tuple = ()  # more options for a replay

    def bench_command(self, scenario, threads, effort):
        return [self.accel, "bench", *self.settings, scenario, "--threads", threads, "--reps", effort.repetitions,
                "--milliseconds", effort.milliseconds]

    def counted_command(self, scenario, operations):
        return [self.accel, "bench", *self.settings, "-c", scenario, operations]

    def replay_command(self, trace, clock):
        return [self.accel, "replay", trace, *self.settings, *self.device, *clock.ours]


def bench(side, scenario, threads, effort):
    """Returns the lines of the scenario, one per number of threads."""
    listed = ",".join(map(str, threads))
    return bench_lines(run(side.bench_command(scenario, listed, effort))[0])


def count(side, scenario, operations):
    """Returns the numbers of instructions and of operations."""
    out, err = run([*VALGRIND, *side.counted_command(scenario, operations)])
    return instructions(err), counted_operations(out)


def replay(side, trace, clock):
    """Returns nanoseconds per call (including the clock), the number of calls, and the state at the end if it is
    shown."""
    out, err = run(side.replay_command(trace, clock))
    return (*replay_time(err, clock.unit), out if clock.shows_state else "")


def run(command):
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return output_of(command, env=environment, timeout=TIMEOUT)
