#!/usr/bin/env python3
"""Regenerates the parity data of pinned host memory: traces, and the output of PyTorch's own allocator for them.

    tests/data/pinned/make.py REPLAY

REPLAY is replay.cpp of this folder, compiled against the headers and libc10.so of the PyPI wheel of torch 2.15.0:

    unzip torch-2.15.0-*.whl 'torch/include/*' torch/lib/libc10.so
    g++ -std=c++20 -O1 -Itorch/include replay.cpp -o replay -Ltorch/lib -lc10 -Wl,-rpath,"$PWD/torch/lib"

PyTorch's template does everything except the driver's part, which replay.cpp simulates. Needs zstd. Writes
NAME.trace.zst and NAME.out.zst.

The traces avoid three cases in which ours is better on purpose (docs/architecture/pinned-memory.md):

- Some streams are held while others run: PyTorch has one queue of events, in which a slow stream delays all others.
- The driver runs out of memory: PyTorch does not release its cache.
- An event cannot be recorded: PyTorch leaks the block.
"""
import pathlib
import random
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
SETTINGS = [
    "pinned_max_round_threshold_mb:1",
    "pinned_max_round_threshold_mb:0",
    "pinned_max_round_threshold_mb:1048576",
    "pinned_max_cached_size_mb:1",
    "pinned_max_cached_size_mb:0",
    "pinned_max_cached_size_mb:1048576",
    "pinned_max_cached_size_mb:2,pinned_max_round_threshold_mb:1",
    "max_split_size_mb:40",  # names neither, so both stay as they are
]

HAND_MADE = {
    "zero": "halloc 1 0\nhrecord 1 1\nhfree 1\nhalloc 1 1\nhstats",
    "sizes": "\n".join(
        f"halloc {size} {size}\nhfree {size}\nhalloc {size} {max(1, size // 2 + 1)}\nhfree {size}"
        for power in range(0, 24)
        for size in sorted({max(1, (1 << power) - 1), 1 << power, (1 << power) + 1})
    ),
    "last_freed_first": "\n".join(
        [f"halloc {n} 4000" for n in range(6)] + [f"hfree {n}" for n in (3, 1, 5, 0, 2, 4)]
        + [f"halloc {n} 3000" for n in range(6)]
    ),
    "first_fit_from_the_back": "conf pinned_max_round_threshold_mb:1\n" + "\n".join(
        [f"halloc {n} {1048577 + n * 1000}" for n in range(8)] + [f"hfree {n}" for n in (7, 2, 5, 0, 6, 1, 4, 3)]
        + [f"halloc {n} {1048577 + n * 1000 - 500}" for n in range(8)]
    ),
    "rounding_switched": "halloc 1 1500000\nhfree 1\nconf pinned_max_round_threshold_mb:1\nhalloc 1 1500000\nhfree 1\n"
    "halloc 1 1500001\nhalloc 2 1500000\nhfree 2\nhfree 1\nconf pinned_max_round_threshold_mb:4\n"
    "halloc 1 1500000\nhstats",
    "at_the_thresholds": "conf pinned_max_round_threshold_mb:3,pinned_max_cached_size_mb:5\n" + "\n".join(
        f"halloc 1 {(mib << 20) + more}\nhfree 1\nhalloc 1 {(mib << 20) + more}\nhfree 1\nhstats\nempty_host_cache"
        for mib in (3, 5) for more in (-1, 0, 1)
    ),
    "cached_size_switched": "halloc 1 3000000\nhfree 1\nconf pinned_max_cached_size_mb:2\nhalloc 1 3000000\nhfree 1\n"
    "halloc 1 2097152\nhfree 1\nhalloc 1 2097153\nhalloc 2 2097153\nhfree 1\n"
    "conf pinned_max_cached_size_mb:8\nhfree 2\nhalloc 1 2097153\nhstats\nempty_host_cache",
    "recorded_twice": "halloc 1 100\nhrecord 1 1\nhrecord 1 1\nhrecord 1 2\nhfree 1\nhstats\nhalloc 2 100\nhstats",
    "given_out_again_while_recorded": "halloc 1 100\nhrecord 1 0\nhfree 1\nhalloc 1 100\nhrecord 1 0\nhold 0\nhfree 1\n"
    "halloc 1 100\nhalloc 2 100\nrelease 0\nhalloc 3 100\nhstats",
    "empty_while_pending": "hold 1\nhalloc 1 5000\nhalloc 2 5000\nhrecord 1 1\nhfree 1\nhfree 2\n"
    "empty_host_cache\nhstats\nrelease 1\nhstats\nempty_host_cache\nhstats",
    "pending_above_the_cached_size": "conf pinned_max_cached_size_mb:1\nhold 1\nhalloc 1 5000000\nhrecord 1 1\n"
    "hfree 1\nhalloc 2 1\nhstats\nrelease 1\nhalloc 3 1\nhstats",
    "resets": "halloc 1 100\nhalloc 2 1000\nhfree 1\nreset_peak\nhstats\nhalloc 3 100\nreset_accumulated\nhstats\n"
    "hfree 2\nempty_host_cache\nhstats\nreset_peak\nreset_accumulated\nhstats",
}


def random_trace(seed, kind):
    """Returns a random trace.

    `free`: no stream is held. `one`: the only stream is held at times. `all`: several are held and released together.
    """
    r = random.Random(f"{kind} {seed}")
    streams = 1 if kind == "one" else r.randint(2, 6)
    most = r.choice([12, 16, 20, 22])
    lines, live, held, next_id = [], [], False, 1
    for _ in range(r.randint(300, 900)):
        choice = r.random()
        if choice < 0.46 and len(live) < 40:
            size = r.choice([int(2 ** r.uniform(0, most)), 1 << r.randint(0, most), 0 if r.random() < 0.1 else 777])
            lines.append(f"halloc {next_id} {size}")
            live.append(next_id)
            next_id += 1
        elif choice < 0.84 and live:
            lines.append(f"hfree {live.pop(r.randrange(len(live)))}")
        elif choice < 0.93 and live:
            lines.append(f"hrecord {r.choice(live)} {r.randrange(streams)}")
        elif choice < 0.955 and kind != "free":
            held = not held
            lines += [f"{'hold' if held else 'release'} {stream}" for stream in range(streams)]
        elif choice < 0.97:
            lines.append("hstats")
        elif choice < 0.98:
            lines.append(r.choice(["empty_host_cache", "reset_peak", "reset_accumulated"]))
        elif choice < 0.99 and seed % 3 == 0:
            lines.append(f"conf {r.choice(SETTINGS)}")
    if held:
        lines += [f"release {stream}" for stream in range(streams)]
    lines += [f"hfree {number}" for number in live] + ["hstats", "empty_host_cache", "hstats"]
    return "\n".join(lines)


def compress(path, text):
    subprocess.run(["zstd", "-19", "-q", "-f", "-o", path], input=text.encode(), check=True)


def main():
    traces = {f"made_{name}": text for name, text in HAND_MADE.items()}
    for kind, count in [("free", 16), ("one", 16), ("all", 12)]:
        traces |= {f"{kind}_{seed:02}": random_trace(seed, kind) for seed in range(1, count + 1)}
    for name, text in traces.items():
        text = f"{text}\nhstats\n"
        replayed = subprocess.run([sys.argv[1], "/dev/stdin"], input=text.encode(), stdout=subprocess.PIPE, check=True)
        compress(HERE / f"{name}.trace.zst", text)
        compress(HERE / f"{name}.out.zst", replayed.stdout.decode())


main()
