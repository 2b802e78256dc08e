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


class PyTorch(NamedTuple):
    bench_program: object
    replay_program: object

    def bench_command(self, scenario, threads, effort):
        return [self.bench_program, "-r", effort.repetitions, "-m", effort.milliseconds, "-t", threads, scenario]

    def counted_command(self, scenario, operations):
        return [self.bench_program, "-c", scenario, operations]

    def replay_command(self, trace):
        return [self.replay_program, "-t", trace]


class Ours(NamedTuple):
    accel: object
    settings: tuple = ()  # options of `accel`
    device: tuple = ()  # more options for a replay

    def bench_command(self, scenario, threads, effort):
        return [self.accel, "bench", *self.settings, scenario, "--threads", threads, "--reps", effort.repetitions,
                "--milliseconds", effort.milliseconds]

    def counted_command(self, scenario, operations):
        return [self.accel, "bench", *self.settings, "-c", scenario, operations]

    def replay_command(self, trace):
        return [self.accel, "replay", trace, *self.settings, *self.device, "--plain", "--time"]


def bench(side, scenario, threads, effort):
    """Returns the lines of the scenario, one per number of threads."""
    listed = ",".join(map(str, threads))
    return bench_lines(run(side.bench_command(scenario, listed, effort))[0])


def count(side, scenario, operations):
    """Returns the numbers of instructions and of operations."""
    out, err = run([*VALGRIND, *side.counted_command(scenario, operations)])
    return instructions(err), counted_operations(out)


def replay(side, trace):
    """Returns nanoseconds per call (including the clock), the number of calls, and the output."""
    out, err = run(side.replay_command(trace))
    return (*replay_time(err), out)


def run(command):
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return output_of(command, env=environment, timeout=TIMEOUT)
