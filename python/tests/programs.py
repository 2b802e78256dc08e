"""Programs in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path


def run(*arguments, without=(), **variables):
    """Runs Python, without some variables of the environment and with others. Returns its output and its errors. Fails
    if it ended other than by itself or by an exception.
    """
    environment = {name: value for name, value in os.environ.items() if name not in without}
    command = [sys.executable, *arguments]
    folder = Path(__file__).parent
    environment |= variables
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=600)
    if done.returncode not in (0, 1):
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stderr}")
    return done.stdout.strip(), done.stderr.strip()


def last_line(text):
    """Returns the last line, which names the exception that ended a program."""
    return (text.splitlines() or [""])[-1]
