#!/usr/bin/env python3
"""Runs tests on mutants, as `cargo mutants` lists them, of the core or of the readers of files (subjects.py).

    tests/mutants/run.py core|readers K/N [PART...]

The mutants are every N-th one, from number K on; 0/1 means all. With parts of names, which begin with the path of the
file, only mutants whose name has one of them count. The results are in target/mutants/SUBJECT/results, a line for each
mutant; what is there already is not run again.

`cargo mutants` compiles the code and all that needs it for each mutant, which takes longer than the tests do. Here all
mutants are in one build, and an environment variable chooses one of them (switched.py). First, each test runs without a
mutant, to see how long it takes and which functions it calls. A mutant then meets the tests that call its function, the
shortest first, until one fails. The long tests wait until all mutants have met the others.
"""

import collections
import dataclasses
import functools
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time

import switched
from subjects import SUBJECTS
from tree import ROOT, copy_sources

OUT = ROOT / "target/mutants"

# Few random inputs, the same ones for each mutant. A failing one is not made smaller.
ENVIRONMENT = {
    **os.environ,
    "ACCELERATOR_STRESS_SECONDS": "1",
    "CARGO_TARGET_DIR": str(OUT / "build"),
    "PROPTEST_CASES": "12",
    "PROPTEST_MAX_SHRINK_ITERS": "0",
    "PROPTEST_RNG_SEED": "1",
    "RUST_BACKTRACE": "0",
}

# A test that hangs uses this much processor time, or none for so long. A busy machine does not change that.
MOST_SECONDS = 30
MOST_IDLE_SECONDS = 20
MOST_MEMORY = 4 << 30

# A test is long if it takes more seconds than this.
LONG_SECONDS = 1


def listed(name, subject, shard):
    command = ["cargo", "mutants", "--config", f"tests/mutants/{name}.toml", "--package", subject.package, "--list"]
    command += ["--json", "--shard", shard, "--sharding", "round-robin"]
    mutants = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    for number, mutant in enumerate(mutants, 1):
        mutant["id"] = number
    return mutants


def programs(subject, tree):
    """Builds the tests. Returns their programs by name."""
    further = ["--package", "accelerator-tests"] + [f"--test={name}" for name in subject.further]
    tests = {}
    for chosen in (subject.built, further):
        command = ["cargo", "test", "--no-run", *chosen, "--message-format", "json"]
        built = subprocess.run(command, cwd=tree, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True)
        messages = map(json.loads, built.stdout.splitlines())
        tests |= {message["target"]["name"]: message["executable"] for message in messages if message.get("executable")}
    return {name: tests.get(f"mutants_{name}") or tests[name] for name in subject.tests + subject.further}


def processor_time(group):
    """The processor time of a group of processes, in ticks."""
    ticks = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path("/proc", process, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat[2]) == group:
            ticks += sum(map(int, stat[11:15]))
    return ticks


@dataclasses.dataclass(frozen=True)
class Test:
    suite: str
    program: str
    name: str


def tests_in(subject, programs):
    """All tests but those that are skipped."""
    for suite, program in programs.items():
        parts = subject.parts.get(suite, [""])
        answer = subprocess.run([program, "--list"], cwd=ROOT / "tests", env=ENVIRONMENT, text=True, capture_output=True)
        for line in answer.stdout.splitlines():
            name, _, kind = line.rpartition(": ")
            is_chosen = kind == "test" and any(part in name for part in parts)
            if is_chosen and not any(skipped in name for skipped in subject.skipped):
                yield Test(suite, program, name)


def run(test, tree, variables):
    """Runs a test. Returns what was wrong: `failed`, `timeout`, or `None`."""
    limits = {resource.RLIMIT_CPU: MOST_SECONDS, resource.RLIMIT_DATA: MOST_MEMORY, resource.RLIMIT_CORE: 0}
    process = subprocess.Popen(
        [test.program, "--exact", test.name],
        cwd=tree / "tests",
        env={**ENVIRONMENT, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    ended = os.pidfd_open(process.pid)
    used, since = 0, time.monotonic()
    try:
        for limit, most in limits.items():
            resource.prlimit(process.pid, limit, (most, most))
        while not select.select([ended], [], [], 2)[0]:
            now = processor_time(process.pid)
            if now != used:
                used, since = now, time.monotonic()
            elif time.monotonic() - since > MOST_IDLE_SECONDS:
                return "timeout"
    finally:
        os.close(ended)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = process.wait()
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return "timeout"
    return None if status == 0 else "failed"


def look(tree, test):
    """Runs a test without a mutant. Returns it, its seconds, and the functions that it calls."""
    began = time.monotonic()
    with tempfile.NamedTemporaryFile() as file:
        wrong = run(test, tree, {switched.REACHED: file.name})
        reached = {number for (number,) in struct.iter_unpack("=I", file.read())}
    # Without the record, it must pass. With it, it may use too much memory or time.
    if wrong:
        wrong, reached = run(test, tree, {}), None
    return test, wrong, time.monotonic() - began, reached


def stages(workers, tree, tests):
    """Runs all tests without a mutant. Returns them with the functions that they call, the short ones and the long."""
    looked = sorted(workers.imap_unordered(functools.partial(look, tree), tests), key=lambda seen: seen[2])
    wrong = [f"{test.suite}: {test.name}: {wrong}" for test, wrong, _, _ in looked if wrong]
    if wrong:
        raise SystemExit("without a mutant:\n" + "\n".join(wrong))
    print(f"{sum(seen[2] for seen in looked):6.1f} s  {len(tests)} tests without a mutant; the longest:", flush=True)
    for test, _, seconds, _ in looked[-20:]:
        print(f"{seconds:6.1f} s  {test.suite}: {test.name}", flush=True)
    divided = [], []
    for test, _, seconds, reached in looked:
        divided[seconds > LONG_SECONDS].append((test, reached))
    return divided


def met(tests, mutant, function):
    """The tests that a mutant meets, which is in this function."""
    for test, reached in tests:
        if test.suite == "compact" and "compact" not in mutant["file"]:
            continue  # the jobs take long, and show how well this policy does
        if reached is None or function in reached:
            yield test


def tried(tree, mutant_and_tests):
    """Returns a mutant, the outcome of its tests, what caught it, and the seconds that they took."""
    (mutant, tests), began = mutant_and_tests, time.monotonic()
    ended, by = "missed", ""
    for test in tests:
        wrong = run(test, tree, {switched.VARIABLE: str(mutant["id"])})
        if wrong:
            ended, by = "timeout" if wrong == "timeout" else "caught", f"{test.suite}: {test.name}"
            break
    return mutant, ended, by, time.monotonic() - began


def part(mutant):
    path = mutant["name"].split("/src/")[1].split(":")[0].split("/")
    return "/".join(path[:2]) if path[0] in ("alloc", "tracker") else path[0]


def report(results):
    columns = ["caught", "timeout", "missed", "unviable", "left out"]
    counts = collections.defaultdict(collections.Counter)
    for result in results.values():
        for row in (part(result), "all"):
            counts[row][result["outcome"]] += 1
    print("| part | " + " | ".join(columns) + " | caught, of viable |")
    print("|---|" + "---|" * (len(columns) + 1))
    for row in sorted(counts, key=lambda row: (row == "all", row)):
        count = counts[row]
        good, viable = count["caught"] + count["timeout"], count["caught"] + count["timeout"] + count["missed"]
        share = f"{100 * good / viable:.0f} %" if viable else ""
        print(f"| `{row}` | " + " | ".join(str(count[column]) for column in columns) + f" | {share} |")
    print("\n".join(result["name"] for result in results.values() if result["outcome"] == "missed"))


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in SUBJECTS:
        raise SystemExit(__doc__)
    name, shard, *parts = sys.argv[1:]
    subject, tree = SUBJECTS[name], OUT / name / "tree"
    tree.mkdir(parents=True, exist_ok=True)
    file = OUT / name / "results"
    lines = file.read_text().splitlines() if file.exists() else []
    results = {result["name"]: result for result in map(json.loads, lines)}
    chosen = [mutant for mutant in listed(name, subject, shard) if mutant["name"] not in results]
    chosen = [mutant for mutant in chosen if not parts or any(part in mutant["name"] for part in parts)]
    random.Random(1).shuffle(chosen)  # a run that is ended early has results from everywhere
    if not chosen:
        return report(results)
    copy_sources(tree)
    unviable, left_out, function_of = switched.make(tree, subject, chosen, ENVIRONMENT)
    tests = list(tests_in(subject, programs(subject, tree)))
    def note(mutant, ended, by="", seconds=0.0):
        result = {"name": mutant["name"], "outcome": ended, "by": by}
        results[mutant["name"]] = result
        print(json.dumps(result), file=kept, flush=True)
        print(f"{seconds:6.1f} s  {ended:8}  {mutant['name']}  {by}", flush=True)

    fixed = dict.fromkeys(left_out, "left out") | dict.fromkeys(unviable, "unviable")

    def is_fixed(mutant):
        return mutant["id"] in fixed

    # Two at a time: most tests have one thread. Not more, or those that wait for others would take too long.
    with file.open("a") as kept, multiprocessing.Pool(2) as workers:
        for mutant in filter(is_fixed, chosen):
            note(mutant, fixed[mutant["id"]])
        running = list(itertools.filterfalse(is_fixed, chosen))
        short, long = stages(workers, tree, tests)
        for stage in (short, long):
            passed = []
            jobs = ((mutant, list(met(stage, mutant, function_of[mutant["id"]]))) for mutant in running)
            for mutant, ended, by, seconds in workers.imap_unordered(functools.partial(tried, tree), jobs):
                if ended == "missed" and stage is short:
                    passed.append(mutant)
                    print(f"{seconds:6.1f} s  so far    {mutant['name']}", flush=True)
                else:
                    note(mutant, ended, by, seconds)
            running = passed
    report(results)


if __name__ == "__main__":
    main()
