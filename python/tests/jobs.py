"""Training jobs in processes of their own, on PyTorch's allocator and on ours."""

import concurrent.futures
import json
import os
import pickle
import tempfile
from pathlib import Path

import programs


def train(model, conf, ours, record=False, seed=0, large=False):
    """Runs a job, with work in the order that a seed of the simulated driver gives. Returns its statistics, or the
    snapshot that it dumped, with its history.
    """
    with tempfile.TemporaryDirectory() as folder:
        statistics, snapshot = Path(folder) / "statistics.json", Path(folder) / "snapshot.pickle"
        command = ["train.py", model, "--conf", conf, "--out", str(statistics)]
        command += ["--ours"] if ours else []
        command += ["--large"] if large else []
        command += ["--snapshot", str(snapshot)] if record else []
        programs.output(*command, CUDA_SIM_SEED=str(seed))
        return pickle.loads(snapshot.read_bytes()) if record else json.loads(statistics.read_text())


def at_once(jobs, **options):
    """Runs jobs, each with the arguments of `train`, as many at once as there are processors. Returns their results."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        runs = [threads.submit(train, *job, **options) for job in jobs]
        return [run.result() for run in runs]


def with_both(jobs, **options):
    """Runs jobs, each once with PyTorch's allocator and once with ours. Returns the pairs of results."""
    results = at_once([(*job, ours) for job in jobs for ours in (False, True)], **options)
    return list(zip(results[::2], results[1::2]))
