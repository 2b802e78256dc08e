#!/usr/bin/env python3
"""Regenerates the parity data of this folder: traces, and the output of PyTorch's own allocator for them.

    tests/data/make.py REPLAY ORACLE_TRACES MODEL_TRACES [POOL_TRACES]

REPLAY         a program that replays a trace through PyTorch's allocator, with output as in docs/TRACE_FORMAT.md
ORACLE_TRACES  a folder with the 92 traces edge_*.txt, rand_*.txt, train_*.txt, kv_*.txt
MODEL_TRACES   a folder with recorded traces of real models, *.trace.zst
POOL_TRACES    a folder with the 95 traces of memory pools: pool_*.txt, capture_*.txt, checkpoint*.txt, ...; REPLAY
               must then model captures

The traces of jobs/ must exist already; they have their own recorder. Needs zstd. Writes these compressed files:

oracle/NAME.trace.zst, NAME.out.zst      each of the 92 traces
oracle/NAME.expandable.out.zst           the output with `conf expandable_segments:True` at the start
settings/NAME.trace.zst, NAME.out.zst    random traces with added settings, fractions and failures
expandable/NAME.trace.zst, NAME.out.zst  other random traces, which also switch expandable segments on and off
pools/NAME.trace.zst, NAME.out.zst       each of the 95 traces of memory pools
pools_expandable/..., pools_mixed/...    the same with expandable segments, and with both kinds by turns
models/NAME.trace.zst                    the recorded traces, except those that are part of `accel`
models/NAME.SETTING.out.zst              statistics and snapshot at the end, for each line of models/settings.txt

and these text files:

models/expandable.txt, jobs/expandable.txt    the results of each recorded trace with expandable segments, on a device
                                              with room for everything
"""
import pathlib
import random
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
BUNDLED = ["gpt2_train", "gpt2_ddp_buckets", "gpt2_fsdp_emulated", "resnet50_train", "maskrcnn_train"]
FIRST_SETTINGS = [
    "max_split_size_mb:20,large_segment_size_mb:20",
    "max_split_size_mb:64,per_process_memory_fraction:0.7",
    "garbage_collection_threshold:0.7,max_split_size_mb:40",
    "max_split_size_mb:30,max_non_split_rounding_mb:64,large_segment_size_mb:24",
]
# None sets max_split_size_mb: PyTorch gives split blocks back to the driver if it is lowered later.
LATER_SETTINGS = [
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[4:8,16:4,64:2,>:1]",
    "garbage_collection_threshold:0.3",
    "garbage_collection_threshold:0.7,large_segment_size_mb:20",
    "large_segment_size_mb:32,max_non_split_rounding_mb:40",
    "throw_on_cudamalloc_oom:True",
    "throw_on_cudamalloc_oom:False",
    "per_process_memory_fraction:0.5",
]
EXPANDABLE = "conf expandable_segments:True"
EXPANDABLE_LINES = 3200  # of each random trace; extra lines are more frequent here
EXPANDABLE_FIRST = [
    "expandable_segments:True",
    "expandable_segments:True,max_split_size_mb:64",
    "expandable_segments:True,large_segment_size_mb:32,roundup_power2_divisions:4",
    "garbage_collection_threshold:0.5,max_split_size_mb:40,expandable_segments:True",
    "max_split_size_mb:30,max_non_split_rounding_mb:64,large_segment_size_mb:24",
    "expandable_segments:True,per_process_memory_fraction:0.6",
]
# A setting that does not name expandable segments leaves them as they are.
EXPANDABLE_LATER = [
    "expandable_segments:True",
    "expandable_segments:False",
    "expandable_segments:True,roundup_power2_divisions:[4:8,16:4,64:2,>:1]",
    "expandable_segments:False,garbage_collection_threshold:0.4",
    "expandable_segments:True,garbage_collection_threshold:0.3",
    "large_segment_size_mb:20,expandable_segments:True",
    "large_segment_size_mb:32",
    "large_segment_size_mb:12,max_non_split_rounding_mb:40",
    "expandable_segments:True,throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.7",
    "throw_on_cudamalloc_oom:False",
    "roundup_power2_divisions:8",
    "garbage_collection_threshold:0.6",
]


# With expandable segments, PyTorch forgets a released pool in this trace whose blocks are still allocated.
FORGOTTEN = "poolrand_39"


def replay(program, text):
    done = subprocess.run(
        [program, "-p", "-"], input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    return done.stdout.decode()


def compress(path, text):
    path.parent.mkdir(exist_ok=True)
    subprocess.run(["zstd", "-19", "-q", "-f", "-o", path], input=text.encode(), check=True)


def decompressed(path):
    return subprocess.run(["zstd", "-dcq", path], stdout=subprocess.PIPE, check=True).stdout.decode()


def write_figures(program, folder, paths):
    """Writes the statistics of PyTorch's allocator at the end of each trace, with expandable segments and 1 TiB."""
    lines = ["# trace, peak of requested bytes, peak of reserved bytes, num_device_alloc + num_device_free"]
    for path in paths:
        out = replay(program, f"capacity {1 << 40}\n{EXPANDABLE}\n{decompressed(path)}\nstats\n")
        words = (line.split() for line in out.splitlines())
        stats = {word[0]: int(word[1]) for word in words if len(word) == 2 and word[1].isdigit()}
        figures = [
            stats["requested_bytes.all.peak"],
            stats["reserved_bytes.all.peak"],
            stats["num_device_alloc"] + stats["num_device_free"],
        ]
        lines.append(" ".join(map(str, [path.name.removesuffix(".trace.zst"), *figures])))
    (folder / "expandable.txt").write_text("\n".join(lines) + "\n")


def with_settings(text, seed):
    """Returns the trace with extra lines, so that settings change at run time."""
    r = random.Random(seed)
    lines = [] if seed % 2 else [f"conf {r.choice(FIRST_SETTINGS)}"]
    for number, line in enumerate(text.splitlines()):
        lines.append(line)
        if number < 4:
            continue
        if r.random() < 1 / 400:
            lines.append(f"conf {r.choice(LATER_SETTINGS)}")
        if r.random() < 1 / 700:
            lines.append(f"fraction {r.choice([0.3, 0.5, 0.9, 1.0])}")
        if r.random() < 1 / 700:
            lines.append(f"fail_mallocs {r.choice([1, 2, 3])}")
        if r.random() < 1 / 300:
            lines.append(r.choice(["snapshot", "meminfo", "cacheinfo", "stats"]))
    return "\n".join(lines) + "\n"


def with_expandable_segments(text, seed):
    """Returns the start of the trace with extra lines, including changes of expandable segments."""
    r = random.Random(f"expandable {seed}")
    lines = [f"conf {EXPANDABLE_FIRST[seed % 7]}"] if seed % 7 < len(EXPANDABLE_FIRST) else []
    for number, line in enumerate(text.splitlines()[:EXPANDABLE_LINES]):
        lines.append(line)
        if number < 4:
            continue
        if r.random() < 1 / 120:
            lines.append(f"conf {r.choice(EXPANDABLE_LATER)}")
        if r.random() < 1 / 400:
            lines.append(f"fraction {r.choice([0.3, 0.5, 0.8, 1.0])}")
        if r.random() < 1 / 150:
            lines.append(f"fail_mallocs {r.choice([1, 1, 2, 3, 5, 9])}")
        if r.random() < 1 / 150:
            lines.append("empty_cache")
        if r.random() < 1 / 200:
            lines.append(r.choice(["snapshot", "meminfo", "cacheinfo", "stats"]))
    return "\n".join(lines + ["snapshot", "stats"]) + "\n"


def with_both_kinds(text, seed):
    """Returns a trace of pools with lines that switch expandable segments on and off."""
    r = random.Random(f"pools {seed}")
    lines, conf, has_begun = [], [], False
    for line in text.splitlines():
        lines.append(line)
        if line.startswith("conf "):
            conf = [setting for setting in line.split()[1].split(",") if "expandable_segments" not in setting]
        has_begun |= line.startswith(("alloc", "free"))
        if has_begun and r.random() < 1 / 25:
            lines.append(f"conf {','.join([*conf, f'expandable_segments:{r.random() < 0.5}'])}")
    return "\n".join(lines) + "\n"


def without_releases(text):
    """Returns a trace of pools in which no pool is released."""
    releases = ("pool_release", "pool_decref", "graph_reset")
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(releases))


def write_pools(program, folder, name, text):
    """Writes a trace and PyTorch's output, unless PyTorch fails or depends on chance. Returns whether it wrote them."""
    try:
        out = replay(program, text)
        if out != replay(program, text):
            raise ValueError("two replays differ")
    except (subprocess.CalledProcessError, ValueError) as error:
        print(f"{folder}/{name}: {error}", file=sys.stderr)
        return False
    compress(HERE / folder / f"{name}.trace.zst", text)
    compress(HERE / folder / f"{name}.out.zst", out)
    return True


def write_all_pools(program, traces):
    for path in sorted(traces.glob("*.txt")):
        text, name = path.read_text(), path.stem
        write_pools(program, "pools", name, text)
        # PyTorch may fail if a pool with expandable segments is released.
        variants = [without_releases(text)] if name == FORGOTTEN else [text, without_releases(text)]
        if "expandable_segments" not in text:
            any(write_pools(program, "pools_expandable", name, f"{EXPANDABLE}\n{variant}") for variant in variants)
        any(write_pools(program, "pools_mixed", name, with_both_kinds(variant, name)) for variant in variants)


def main():
    program, traces, models = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    for pools in sys.argv[4:]:
        write_all_pools(program, pathlib.Path(pools))
    for path in sorted(traces.glob("*.txt")):
        text = path.read_text()
        compress(HERE / "oracle" / f"{path.stem}.trace.zst", text)
        compress(HERE / "oracle" / f"{path.stem}.out.zst", replay(program, text))
        out = replay(program, f"{EXPANDABLE}\n{text}")
        compress(HERE / "oracle" / f"{path.stem}.expandable.out.zst", out)
    for seed, path in enumerate(sorted(traces.glob("rand_*.txt"))[:24]):
        text = with_settings(path.read_text(), seed)
        compress(HERE / "settings" / f"{path.stem}.trace.zst", text)
        compress(HERE / "settings" / f"{path.stem}.out.zst", replay(program, text))
    for seed, path in enumerate(sorted(traces.glob("rand_*.txt"))[22:]):
        text = with_expandable_segments(path.read_text(), seed)
        compress(HERE / "expandable" / f"{path.stem}.trace.zst", text)
        compress(HERE / "expandable" / f"{path.stem}.out.zst", replay(program, text))
    settings = dict(line.split(" ", 1) for line in (HERE / "models" / "settings.txt").read_text().splitlines())
    # The scoped traces are the same operations with comments.
    recorded = [path for path in sorted(models.glob("*.trace.zst")) if not path.match("*.scoped.trace.zst")]
    write_figures(program, HERE / "models", recorded)
    write_figures(program, HERE / "jobs", sorted((HERE / "jobs").glob("*.trace.zst")))
    for path in recorded:
        name = path.name.removesuffix(".trace.zst")
        text = decompressed(path)
        if name not in BUNDLED:
            (HERE / "models" / path.name).write_bytes(path.read_bytes())
        for setting, lines in settings.items():
            ahead = lines.replace(";", "\n")
            out = replay(program, f"{ahead}\n{text}\nstats\nsnapshot\n")
            compress(HERE / "models" / f"{name}.{setting}.out.zst", out[out.index("@"):])


main()
