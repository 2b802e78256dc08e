"""Trains one of three models for a few steps, with sizes that change, on whatever allocator serves this process.

    train.py MODEL [--large] [--conf SETTINGS --ours] [--out FILE]

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
parser.add_argument("--large", action="store_true")
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--out")
parser.add_argument("--snapshot")
options = parser.parse_args()
if options.conf and not options.ours:
    os.environ["PYTORCH_ALLOC_CONF"] = options.conf

import torch
from torch import nn
from torch.nn import functional as F

if options.ours:
    import accelerator_alloc

    accelerator_alloc.install(conf=options.conf or None)

torch.backends.cuda.enable_cudnn_sdp(False)
torch.backends.cudnn.enabled = False


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Experts(nn.Module):
    """Each of four experts gets a part of the tokens, whose length differs by expert."""

    def __init__(self, width):
        super().__init__()
        self.experts = nn.ModuleList(Mlp(width) for _ in range(4))

    def forward(self, x):
        flat = x.flatten(0, 1)
        sizes = [len(flat) * share // 16 for share in (7, 5, 3)]
        parts = flat.split([*sizes, len(flat) - sum(sizes)])
        return torch.cat([expert(part) for expert, part in zip(self.experts, parts)]).view_as(x)


class Language(nn.Module):
    def __init__(self, block):
        super().__init__()
        width, layers, words = (768, 12, 50257) if options.large else (256, 4, 8192)
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.blocks = nn.ModuleList(nn.Sequential(Attention(width), block(width)) for _ in range(layers))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def convolution():
    layers, channels = [], 3
    for wider in (64, 128, 256, 512, 1024) if options.large else (32, 64, 128):
        layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2)]
        channels = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def images(step):
    batch, side = (32, 256) if options.large else (8, 128)
    return torch.zeros(batch, 3, side - 16 * (step % 3), 96, device="cuda")


def tokens(step):
    length = 1024 if options.large else 384
    return torch.zeros(8, length - 37 * (step % 4), dtype=torch.long, device="cuda")


model, batch = {
    "transformer": lambda: (Language(Mlp), tokens),
    "convolution": lambda: (convolution(), images),
    "experts": lambda: (Language(Experts), tokens),
}[options.model]()

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
statistics = {key: int(value) for key, value in torch.cuda.memory_stats().items()}
if options.out:
    with open(options.out, "w") as file:
        json.dump(statistics, file)
if options.snapshot:
    torch.cuda.memory._dump_snapshot(options.snapshot)
peak = {name: statistics[f"{name}_bytes.all.peak"] for name in ("requested", "reserved")}
print(f"{options.model} {options.conf or 'default'}: {peak['reserved'] / peak['requested']:.4f}")
