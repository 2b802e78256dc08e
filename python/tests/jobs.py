"""Training jobs in processes of their own, on PyTorch's allocator and on ours."""

import concurrent.futures
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path


def train(model, conf, ours, record=False):
    """Runs a job. Returns its statistics, or the snapshot that it dumped, with its history."""
    with tempfile.TemporaryDirectory() as folder:
        statistics, snapshot = Path(folder) / "statistics.json", Path(folder) / "snapshot.pickle"
        command = [sys.executable, "train.py", model, "--conf", conf, "--out", str(statistics)]
        command += ["--ours"] if ours else []
        command += ["--snapshot", str(snapshot)] if record else []
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
        if done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return pickle.loads(snapshot.read_bytes()) if record else json.loads(statistics.read_text())


def together(jobs, **options):
    """Runs all jobs, each once with PyTorch's allocator and once with ours, as many at once as there are processors.

    Returns the pairs of results, in the order of the jobs.
    """
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        runs = [threads.submit(train, *job, ours, **options) for job in jobs for ours in (False, True)]
        results = [run.result() for run in runs]
    return list(zip(results[::2], results[1::2]))
