#!/usr/bin/env python3
"""Records the device memory requests of PyTorch training and serving jobs, without a GPU.

    tests/data/jobs/recorder/record.py JOB [-o FILE] [--seed N]
    tests/data/jobs/recorder/record.py --list

The job runs as an ordinary PyTorch program for CUDA, but on fake tensors (torch._subclasses.FakeTensorMode). Shapes,
types, storages and lifetimes are those of the real program, but values do not exist. A TorchDispatchMode looks at the
result of every operator. It writes each new storage on the GPU as

    alloc ID BYTES STREAM

`free ID` follows when the last reference to the storage is gone (weakref.finalize on the UntypedStorage, which lives
as long as the storage itself, including autograd's references). Tensor.record_stream becomes `record ID STREAM`.
Streams are numbered in the order of their first use; 0 is the default stream. BYTES is the size of the storage, which
the program requested. Requests of zero bytes are left out. `# step N ...` starts a step. `hold S` and `release S` mean
that the work of stream S is still running or done; only the jobs with several streams write them.

The backward pass and autocast run only if PyTorch finds a device. So a small library (no_device.c, compiled at the
start and preloaded) answers the few CUDA runtime calls with one device of compute capability 9.0. Nothing is ever
computed.

What the recording cannot see:

- Memory that an operator allocates and frees inside itself: the partial sums of most reductions, sort and scan
  buffers, cuDNN workspaces. Only three kinds are added by hand in all jobs: cuBLAS workspaces (1 MiB at the first
  addmm and 32 MiB at the first mm or bmm of a stream, kept), the two temporary tensors of the backward pass of flash
  attention, and the partial sums of column sums (gradients of biases). speech_ctc_train adds the tables of its loss.
- Values: the job draws quantities that depend on them (tokens per expert, lengths of requests, sizes of images) from a
  seeded random generator.
- An operator that PyTorch splits up below the dispatcher counts as one.
- The end: memory that is live then is not freed.

Two recordings of one job with the same seed differ only in the order in which autocast drops its cached weights,
which PyTorch keeps in a hash table by address.

Needs: pip install torch transformers torchvision timm diffusers nvidia-cuda-crt, and a C compiler. All weights are
random, and a run downloads nothing.
"""

import argparse
import importlib
import importlib.util
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import warnings

# The modules with jobs.
FILES = ["diffusion", "fresh", "fresh_batches", "language", "serving", "sparse", "vision"]
NO_DEVICE = "RECORD_NO_DEVICE"


def restart_with_device():
    """Compiles no_device.c, and restarts this program with it preloaded."""
    root = pathlib.Path(importlib.util.find_spec("torch").origin).parent.parent
    include = root / "nvidia" / "cu13" / "include"
    folder = tempfile.mkdtemp(prefix="no-device-")
    library = os.path.join(folder, "libcuda.so.1")
    source = pathlib.Path(__file__).with_name("no_device.c")
    flags = ["-O1", "-w", "-shared", "-fPIC", f"-I{include}", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *flags, "-o", library, source], check=True)
    env = dict(os.environ, LD_PRELOAD=library)
    env[NO_DEVICE] = folder
    os.execve(sys.executable, [sys.executable] + sys.orig_argv[1:], env)


def record(job, path, seed):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from common import JOBS
    from recorder import Recorder

    run, about = JOBS[job]
    random.seed(seed)
    torch.backends.cuda.enable_cudnn_sdp(False)  # use flash attention, as most programs do
    with open(path, "w") as out:
        rec = Recorder(out, random.Random(seed))
        rec.line(f"# trace {job}")
        rec.line(f"# {about}")
        fake = "on fake tensors (no GPU); sizes are requested bytes; temporary memory inside operators is not seen"
        rec.line(f"# torch {torch.__version__} {fake}")
        rec.line("# cuBLAS workspaces: 1 MiB and 32 MiB per stream, at the first use, kept")
        rec.line("# step 0 setup")
        with FakeTensorMode(allow_non_fake_inputs=True), rec:
            alive = run(rec)  # keeps the job's variables until the end
            rec.report()
            print(f"{job}: {rec.summary()}", file=sys.stderr)
            out.flush()
            sys.stderr.flush()
            os._exit(0)  # without freeing live memory


def main():
    if NO_DEVICE not in os.environ:
        restart_with_device()
    os.environ.pop("LD_PRELOAD")  # the library is loaded by now
    shutil.rmtree(os.environ[NO_DEVICE])
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")

    import torch

    torch.cuda.init()
    for file in FILES:
        importlib.import_module(file)
    from common import JOBS as jobs

    parser = argparse.ArgumentParser()
    parser.add_argument("job", nargs="?", choices=sorted(jobs))
    parser.add_argument("-o", metavar="FILE", default="/dev/stdout")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list or not arguments.job:
        for name, (_, about) in sorted(jobs.items()):
            print(f"{name}: {about}")
        return
    record(arguments.job, arguments.o, arguments.seed)


main()
