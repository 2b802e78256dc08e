#!/usr/bin/env python3
"""Makes the parity data of this folder anew: traces, and what PyTorch's own allocator prints for them.

    tests/data/make.py REPLAY ORACLE_TRACES MODEL_TRACES

REPLAY         a program that replays a trace through PyTorch's allocator and prints as docs/TRACE_FORMAT.md says
ORACLE_TRACES  a folder with the 92 traces edge_*.txt, rand_*.txt, train_*.txt, kv_*.txt
MODEL_TRACES   a folder with recorded traces of real models, *.trace.zst

Needs zstd. Writes, compressed,

oracle/NAME.trace.zst, NAME.out.zst      each of the 92
settings/NAME.trace.zst, NAME.out.zst    random ones with settings, fractions and failures put in between
models/NAME.trace.zst                    the recorded ones, but those that `accel` brings along
models/NAME.SETTING.out.zst              statistics and snapshot at the end, for each line of models/settings.txt
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
# None sets max_split_size_mb: once blocks are split, PyTorch gives a split block back to the driver when that is lowered.
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


def replay(program, text):
    done = subprocess.run(
        [program, "-p", "-"], input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    return done.stdout.decode()


def compress(path, text):
    path.parent.mkdir(exist_ok=True)
    subprocess.run(["zstd", "-19", "-q", "-f", "-o", path], input=text.encode(), check=True)


def with_settings(text, seed):
    """The trace with other lines put in between, so that settings change at run time."""
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


def main():
    program, traces, models = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    for path in sorted(traces.glob("*.txt")):
        text = path.read_text()
        compress(HERE / "oracle" / f"{path.stem}.trace.zst", text)
        compress(HERE / "oracle" / f"{path.stem}.out.zst", replay(program, text))
    for seed, path in enumerate(sorted(traces.glob("rand_*.txt"))[:24]):
        text = with_settings(path.read_text(), seed)
        compress(HERE / "settings" / f"{path.stem}.trace.zst", text)
        compress(HERE / "settings" / f"{path.stem}.out.zst", replay(program, text))
    settings = dict(line.split(" ", 1) for line in (HERE / "models" / "settings.txt").read_text().splitlines())
    for path in sorted(models.glob("*.trace.zst")):
        name = path.name.removesuffix(".trace.zst")
        if name.endswith(".scoped"):
            continue  # the same operations with comments
        text = subprocess.run(["zstd", "-dcq", path], stdout=subprocess.PIPE, check=True).stdout.decode()
        if name not in BUNDLED:
            (HERE / "models" / path.name).write_bytes(path.read_bytes())
        for setting, lines in settings.items():
            ahead = lines.replace(";", "\n")
            out = replay(program, f"{ahead}\n{text}\nstats\nsnapshot\n")
            compress(HERE / "models" / f"{name}.{setting}.out.zst", out[out.index("@"):])


main()
