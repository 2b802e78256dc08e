#!/usr/bin/env python3
"""Regenerates the histories of this folder, which PyTorch's own allocator records while a trace is replayed.

    tests/data/history/make.py RECORD

RECORD is record.cpp of this folder, compiled against the headers, libc10.so and libc10_cuda.so of the PyPI wheel of
torch 2.15.0, the headers of the CUDA runtime, and a library that replaces that runtime on a machine without a GPU. In
that library, streams run at once unless held, cudaMalloc returns a new multiple of 2 MiB each time, and there are the
functions that record.cpp declares:

    unzip torch-2.15.0-*.whl 'torch/include/*' torch/lib/libc10.so torch/lib/libc10_cuda.so
    g++ -std=c++20 -O1 -DNDEBUG -Itorch/include -ICUDA/include record.cpp -o record \\
        -Ltorch/lib -lc10_cuda -lc10 -l:libcudart.so.13 -Wl,-rpath,"$PWD/torch/lib" -pthread

Needs zstd, and the traces next to this folder. Writes these files:

NAME.txt.zst               history, settings and segments at the end, of the traces in WHOLE and of all edge_*
oracle/NAME.expandable...  the same with `conf expandable_segments:True` at the start of the trace
digests.txt                for every trace, its name, the number of lines of its history and segments, and the 64-bit
                           FNV-1a hash of these lines

Frees that PyTorch completes at once are in the order of a hash table of streams. Here they are sorted.
"""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent
BUNDLED = DATA.parent.parent / "crates" / "accelerator-cli" / "traces"
WHOLE = {
    "oracle": {"rand_02", "rand_07", "rand_11", "rand_15", "kv_paged", "train_comm", "train_small", "train_tight"},
    "oracle.expandable": {"rand_03", "train_small"},
    "settings": {"rand_02", "rand_07", "rand_11", "rand_14"},
    "expandable": {"rand_23", "rand_26", "rand_31", "rand_38", "rand_45", "rand_46"},
}


def sorted_completions(lines):
    """Sorts runs of free_completed, except one that immediately follows its own free_requested."""
    result, run = [], []
    for line in lines + [""]:
        action, _, rest = line.partition(" ")
        if action == "free_completed" and (run or not result or result[-1] != f"free_requested {rest}"):
            run.append(line)
            continue
        result += sorted(run)
        run = []
        result.append(line)
    return result[:-1]


def fnv1a(lines):
    value = 0xCBF29CE484222325
    for byte in "".join(line + "\n" for line in lines).encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def main():
    digests = []
    for folder, ahead in [
        ("oracle", ""),
        ("oracle", ".expandable"),
        ("settings", ""),
        ("expandable", ""),
        ("models", ""),
        ("models", ".expandable"),
    ]:
        paths = list((DATA / folder).glob("*.trace.zst"))
        if folder == "models":
            paths += BUNDLED.glob("*.trace.zst")
        for path in sorted(paths, key=lambda path: path.name):
            name = path.name.removesuffix(".trace.zst")
            trace = subprocess.run(["zstd", "-dcq", path], stdout=subprocess.PIPE, check=True).stdout
            if ahead:
                trace = b"conf expandable_segments:True\n" + trace
            done = subprocess.run(
                [sys.argv[1]], input=trace, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
            )
            lines = sorted_completions(done.stdout.decode().splitlines())
            compared = [line for line in lines if not line.startswith("setting ")]
            full_name = f"{folder}::{name}{ahead.replace('.', '::')}"
            digests.append(f"{full_name} {len(compared)} {fnv1a(compared):016x}\n")
            if name.startswith("edge_") or name in WHOLE.get(f"{folder}{ahead}", ()):
                file = HERE / folder / f"{name}{ahead}.txt.zst"
                file.parent.mkdir(exist_ok=True)
                text = "".join(line + "\n" for line in lines).encode()
                subprocess.run(["zstd", "-19", "-q", "-f", "-o", file], input=text, check=True)
    (HERE / "digests.txt").write_text("".join(digests))


main()
