"""Trains one of three models on the CPU, with real values and sizes that change, and prints a digest of all losses and
weights.

    train_cpu.py MODEL [--conf SETTINGS --ours]
"""

import argparse
import hashlib

import torch
from torch.nn import functional as F

import models

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=["transformer", "convolution", "experts"])
parser.add_argument("--conf", default="")
parser.add_argument("--ours", action="store_true")
options = parser.parse_args()

if options.ours:
    import accelerator_alloc

    accelerator_alloc.install(conf=options.conf, device="cpu")

WORDS = 1000
torch.manual_seed(0)
if options.model == "convolution":
    model = models.convolution(16, 32, 64)
else:
    model = getattr(models, options.model)(64, 2, WORDS)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
digest = hashlib.sha256()
for step in range(10):
    if options.model == "convolution":
        inputs, labels = torch.randn(4, 3, 64 - 8 * (step % 3), 48), torch.randint(10, (4,))
    else:
        tokens = torch.randint(WORDS, (4, 97 - 13 * (step % 4)))
        inputs, labels = tokens[:, :-1], tokens[:, 1:].flatten()
    loss = F.cross_entropy(model(inputs).flatten(0, -2), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    digest.update(loss.detach().numpy().tobytes())
for weight in model.parameters():
    digest.update(weight.detach().numpy().tobytes())
print(digest.hexdigest())
if options.ours:
    statistics = accelerator_alloc.memory_stats()
    assert statistics["allocation.all.allocated"] > 1000, "tensors did not come from this allocator"
