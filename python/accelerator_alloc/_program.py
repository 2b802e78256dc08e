"""Runs the program `accel`, which comes with the wheel."""

import os
import subprocess
import sys
from pathlib import Path

from ._error import AcceleratorError


def path():
    """Returns the file of the program: the wheel's, or that of ``ACCELERATOR_ACCEL``."""
    return os.environ.get("ACCELERATOR_ACCEL") or str(Path(__file__).parent / "accel")


def output(*arguments):
    """Runs the program. Returns what it prints.

    :raises AcceleratorError: if it fails, with its message
    """
    try:
        done = subprocess.run([path(), *arguments], capture_output=True, encoding="utf-8")
    except OSError as error:
        raise AcceleratorError(f"the program accel cannot be run: {error}") from error
    if done.returncode:
        raise AcceleratorError(done.stderr.strip().removeprefix("error: "))
    return done.stdout


def main():
    """The command ``accel``."""
    os.execv(path(), ["accel", *sys.argv[1:]])
