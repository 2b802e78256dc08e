"""Trains one of three models for a few steps, with sizes that change, on whatever allocator serves this process.

    train.py MODEL [--large] [--conf SETTINGS --ours [--pluggable]] [--out FILE]

Writes all statistics of torch.cuda.memory_stats() as JSON. Large models have the size of GPT-2 small or more. The
simulated device runs no kernels, so shapes must not depend on values.
"""

import argparse
import json
import os

import simulated

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=["transformer", "convolution", "experts"])
parser.add_argument("--conf", default="")
parser.add_argument("--ours", action="store_true")
parser.add_argument("--pluggable", action="store_true")  # PyTorch has no statistics of it
parser.add_argument("--large", action="store_true")
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--out")
parser.add_argument("--snapshot")
options = parser.parse_args()
if options.conf and not options.ours:
    os.environ["PYTORCH_ALLOC_CONF"] = options.conf

import torch

import models

if options.ours:
    import accelerator_alloc

    accelerator_alloc.install(conf=options.conf or None)

torch.backends.cuda.enable_cudnn_sdp(False)
torch.backends.cudnn.enabled = False


def images(step):
    batch, side = (32, 256) if options.large else (8, 128)
    return torch.zeros(batch, 3, side - 16 * (step % 3), 96, device="cuda")


def tokens(step):
    length = 1024 if options.large else 384
    return torch.zeros(8, length - 37 * (step % 4), dtype=torch.long, device="cuda")


if options.model == "convolution":
    widths = (64, 128, 256, 512, 1024) if options.large else (32, 64, 128)
    model, batch = models.convolution(*widths), images
else:
    sizes = (768, 12, 50257) if options.large else (256, 4, 8192)  # width, layers, words
    model, batch = getattr(models, options.model)(*sizes), tokens

if options.snapshot:
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=100_000)
model = model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
side = torch.cuda.Stream()
for step in range(options.steps):
    loss = model(batch(step)).float().mean()
    loss.backward()
    with torch.cuda.stream(side):
        gathered = torch.empty(3_000_000, device="cuda")
    gathered.record_stream(torch.cuda.current_stream())
    del gathered
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step == 2:
        torch.cuda.empty_cache()
there = torch.arange(1000.0)
assert torch.equal(there.cuda().cpu(), there), "bytes change on their way to the device and back"
assert simulated.violations() == 0, "work touched memory that was not the program's"
memory_stats = (lambda: accelerator_alloc.memory_stats("cuda")) if options.pluggable else torch.cuda.memory_stats
statistics = {key: int(value) for key, value in memory_stats().items()}
if options.out:
    with open(options.out, "w") as file:
        json.dump(statistics, file)
if options.snapshot:
    torch.cuda.memory._dump_snapshot(options.snapshot)
peak = {name: statistics[f"{name}_bytes.all.peak"] for name in ("requested", "reserved")}
print(f"{options.model} {options.conf or 'default'}: {peak['reserved'] / peak['requested']:.4f}")
