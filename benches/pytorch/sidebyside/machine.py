"""Requirements on the machine, and its description."""
import datetime
import os
import platform
import shutil

from .failure import Failure, output_of


def require_platform():
    machine = f"{platform.system()} {platform.machine()}"
    if machine != "Linux x86_64":
        raise Failure(f"this machine is {machine}, but the PyTorch to compare with is built for Linux on x86-64: "
                      "run it there")
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):
        libc = None
    if not libc or tuple(map(int, libc.split()[-1].split(".")[:2])) < (2, 28):
        raise Failure(f"PyTorch needs glibc 2.28 or later, but this system has {libc or 'another C library'}: "
                      "run it elsewhere")


def require_programs():
    for program, reason, remedy in [
        ("cargo", "to build ours", "get Rust from https://rustup.rs"),
        ("g++", "to build PyTorch's side", "on Debian: apt-get install g++"),
    ]:
        if not shutil.which(program):
            raise Failure(f"needs {program} {reason}: {remedy}")
    version = output_of(["g++", "-dumpversion"])[0].strip()
    if int(version.split(".")[0]) < 11:
        raise Failure(f"needs g++ 11 or later, for C++20, but this is {version}: put a later one first in PATH")


def can_count():
    """Whether instructions can be counted here."""
    return shutil.which("valgrind") is not None


def commit(root):
    """The commit that is measured; `-dirty` if files differ from it."""
    try:
        return output_of(["git", "describe", "--always", "--dirty", "--exclude", "*"], cwd=root)[0].strip()
    except Failure:
        return "an unknown commit"


def description(root):
    """The day, the processor and the compilers."""
    rust = output_of(["rustc", "--version"], cwd=root)[0].split()[1]
    gcc = output_of(["g++", "-dumpfullversion"])[0].strip()
    day = datetime.datetime.now(datetime.timezone.utc).date()
    cores = len(os.sched_getaffinity(0))
    return f"{day}, {processor()}, {cores} core{'s' if cores > 1 else ''}, Rust {rust}, g++ {gcc}"


def processor():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "a processor without a name"
