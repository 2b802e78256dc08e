"""Errors that end the program with a message."""
import shlex
import subprocess


class Failure(Exception):
    """Says what is wrong and what to do."""


def output_of(command, **options):
    """Runs a program to its end. Returns its standard output and error as text."""
    done = finished(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    if done.returncode != 0:
        raise Failure(f"failed with status {done.returncode}: {shlex.join(map(str, command))}\n{tail(done.stderr)}")
    return done.stdout, done.stderr


def finished(command, **options):
    try:
        return subprocess.run([str(word) for word in command], encoding="utf-8", errors="replace",
                              stdin=subprocess.DEVNULL, **options)
    except FileNotFoundError:
        raise Failure(f"there is no program {command[0]}") from None
    except subprocess.TimeoutExpired as error:
        raise Failure(f"no end after {error.timeout:.0f} s: {shlex.join(map(str, command))}") from None


def tail(text, lines=15):
    return "\n".join(text.strip().splitlines()[-lines:])
