"""Runs one of the recorded jobs with real tensors on the simulated device. Prints the bytes that it requested at its
peak, and how much PyTorch reserved over that.

    recorded.py JOB

The job's program knows nothing of the allocator. No kernel runs, so values are those of fresh memory.
"""

import os
import random
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "data" / "jobs" / "recorder"))
warnings.filterwarnings("ignore")
torch.backends.cuda.enable_cudnn_sdp(False)
torch.backends.cudnn.enabled = False


class Unrecorded:
    """Stands for the recorder: this program runs on the allocator itself."""

    def __init__(self):
        self.rng, self.answers = random.Random(1), {}

    def stream_number(self, handle):
        return handle

    def op(self, line):
        pass

    line = op

    def step(self, what=""):
        pass


import diffusion, language, sparse, vision  # noqa: E401, F401

from common import JOBS

random.seed(1)
kept = JOBS[sys.argv[1]][0](Unrecorded())
statistics = torch.cuda.memory_stats()
requested, reserved = (statistics[f"{name}_bytes.all.peak"] for name in ("requested", "reserved"))
print(requested, reserved / requested, flush=True)
os._exit(0)  # without freeing what it keeps, which takes a while
