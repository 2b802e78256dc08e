"""Programs in processes of their own."""

import atexit
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LIMIT = 600  # seconds


def run(*arguments, without=(), **variables):
    """Runs Python, without some variables of the environment and with others. Returns its output and its errors. Fails
    if it ended other than by itself or by an exception.
    """
    environment = {name: value for name, value in os.environ.items() if name not in without} | variables
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE, timeout=LIMIT)
    return _ended(arguments, done.returncode, done.stdout, done.stderr)


def fork(*arguments, **variables):
    """Does the same in a process in which PyTorch is imported already, which saves most of a small program's time. What
    is read at that time is not read again, such as some variables of the environment.
    """
    return _ended(arguments, *_forked(arguments, variables))


def output(*arguments, **variables):
    """Does the same, and fails unless the program succeeds. Returns its output as it is."""
    code, out, error = _forked(arguments, variables)
    if code != 0:
        raise AssertionError(f"{arguments} ended with {code}: {out}{error}")
    return out


def last_line(text):
    """Returns the last line, which names the exception that ended a program."""
    return (text.splitlines() or [""])[-1]


def _forked(arguments, variables):
    with tempfile.TemporaryDirectory() as folder:
        out, error = Path(folder, "out"), Path(folder, "error")
        out.touch()
        error.touch()
        program = {
            "arguments": arguments,
            "environment": {**os.environ, **variables},
            "out": str(out),
            "error": str(error),
        }
        try:
            server = _idle.get_nowait()
        except queue.Empty:
            server = _start()
        server.stdin.write(json.dumps(program) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], LIMIT)[0]:
            os.killpg(server.pid, signal.SIGKILL)
            raise AssertionError(f"{arguments} did not end: {error.read_text()}")
        code = int(server.stdout.readline())
        _idle.put(server)
        return code, out.read_text(), error.read_text()


def _ended(arguments, code, out, error):
    if code not in (0, 1):
        raise AssertionError(f"{arguments} ended with {code}: {error}")
    return out.strip(), error.strip()


# Processes of `preloaded.py` that run no program at the moment.
_idle = queue.LifoQueue()


def _start():
    command = [sys.executable, "preloaded.py"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=HERE, start_new_session=True, **pipes)


@atexit.register
def _stop():
    while not _idle.empty():
        server = _idle.get()
        server.stdin.close()
        server.wait()
