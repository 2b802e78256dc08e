#!/usr/bin/env python3
"""Plants faults, one at a time, and runs the test that must find each of them.

    tests/mutants/planted.py [PART...]    all faults, or those with one of these parts in their name or suite
    tests/mutants/planted.py --check      only checks that each fault still fits the code
    tests/mutants/planted.py --quick ...  does not run the tests without a fault

The faults are in planted.toml. A test finds a fault if it fails, and says what the fault's `message` has. Each test
first passes without a fault. The code is changed in a copy, in target/planted.
"""

import argparse
import os
import pathlib
import re
import subprocess
import time
import tomllib

from tree import ROOT, copy_sources

OUT = ROOT / "target/planted"
TREE = OUT / "tree"

# A fault may cause an endless wait.
MOST_SECONDS = 1200

# What fails is not made smaller.
ENVIRONMENT = {
    "ACCELERATOR_PROPERTY_FAILURES": str(OUT / "failures"),
    "PROPTEST_MAX_SHRINK_ITERS": "0",
    "RUST_BACKTRACE": "0",
}


def misfit(fault):
    """Returns where a fault does not fit the code, or `None`."""
    for change in fault["changes"]:
        count = (ROOT / change["file"]).read_text().count(change["old"])
        if count != 1:
            return f"{change['file']} has {count} times: {change['old']}"
    return None


def built(suite):
    """Builds the program of a suite, and returns it."""
    environment = {**os.environ, **suite.get("build", {}), "CARGO_TARGET_DIR": str(OUT / suite.get("target", "build"))}
    command = ["cargo", "test", "--no-run", "--locked", *suite["cargo"]]
    build = subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True)
    found = re.findall(r"^ *Executable .*\((.*)\)$", build.stderr, re.MULTILINE)
    if build.returncode != 0 or len(found) != 1:
        raise SystemExit(build.stderr)
    return found[0]


def run(suite, test):
    """Runs a test. Returns whether it passed, what it printed, and the seconds it took."""
    program, began = built(suite), time.monotonic()
    environment = {**os.environ, **ENVIRONMENT, **suite.get("environment", {})}
    command = ["timeout", str(MOST_SECONDS), program, test]
    ran = subprocess.run(command, cwd=TREE / "tests", env=environment, capture_output=True, text=True, errors="replace")
    return ran.returncode == 0, ran.stdout + ran.stderr, time.monotonic() - began


def plant(fault):
    for change in fault["changes"]:
        file = TREE / change["file"]
        file.write_text(file.read_text().replace(change["old"], change["new"]))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("part", nargs="*")
    return parser.parse_args()


def main():
    asked = arguments()
    faults = tomllib.loads(pathlib.Path(__file__).with_name("planted.toml").read_text())
    suites, faults = faults["suite"], faults["fault"]
    wrong = [f"{fault['name']}: {problem}" for fault in faults if (problem := misfit(fault))]
    if wrong or asked.check:
        raise SystemExit("\n".join(wrong) or None)
    chosen = [fault for fault in faults if is_chosen(fault, asked.part)]
    if not chosen:
        raise SystemExit(f"no fault has one of these in its name, and no suite is named so: {', '.join(asked.part)}")
    copy_sources(TREE)
    tests = dict.fromkeys((fault["suite"], fault["test"]) for fault in chosen)
    for suite, test in tests if not asked.quick else ():
        passed, text, took = run(suites[suite], test)
        print(f"{took:6.1f} s  without a fault, {suite} {test} {'passes' if passed else 'FAILS'}", flush=True)
        if not passed:
            raise SystemExit(text)
    missed = 0
    for fault in chosen:
        plant(fault)
        passed, text, took = run(suites[fault["suite"]], fault["test"])
        message = next((line.strip() for line in text.splitlines() if fault["message"] in line), None)
        is_found = not passed and message is not None
        verdict = "found " if is_found else "MISSED"
        print(f"{took:6.1f} s  {verdict}  {fault['suite']} {fault['test']}: {fault['name']}", flush=True)
        print(f"          {message if is_found else text[-4000:]}", flush=True)
        missed += not is_found
        copy_sources(TREE)
    raise SystemExit(missed and f"{missed} of {len(chosen)} faults were missed")


def is_chosen(fault, parts):
    return not parts or any(part in fault["name"] or part == fault["suite"] for part in parts)


if __name__ == "__main__":
    main()
