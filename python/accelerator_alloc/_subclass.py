"""Finds or compiles the part that depends on PyTorch's version."""

import hashlib
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

_HERE = Path(__file__).parent
_SOURCES = ("subclass.cpp", "accelerator_torch.h")


def path(torch):
    """Returns the compiled part for this PyTorch. It is compiled once, and kept in the user's cache."""
    prebuilt = _HERE / f"subclass-{torch.__version__.split('+')[0]}.so"
    if prebuilt.exists():
        return str(prebuilt)
    digest = hashlib.sha256(torch.__version__.encode())
    for source in _SOURCES:
        digest.update((_HERE / source).read_bytes())
    kept = _cache() / f"subclass-{digest.hexdigest()[:16]}.so"
    if not kept.exists():
        _compile(torch, kept)
    return str(kept)


def _cache():
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "accelerator-alloc"


def _compile(torch, target):
    from ._install import AcceleratorError

    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not compiler:
        raise AcceleratorError(
            f"there is no prebuilt part for PyTorch {torch.__version__}, and no C++ compiler to build it: install g++"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target.with_suffix(f".{os.getpid()}")
    packages = Path(torch.__file__).parent
    includes = [packages / "include", *_cuda_headers(packages)]
    command = [compiler, "-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", *(f"-I{folder}" for folder in includes)]
    command += [str(_HERE / "subclass.cpp"), f"-L{packages / 'lib'}", "-lc10_cuda", "-lc10", "-o", str(made)]
    # A preloaded driver, such as a simulated one, is not for the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    built = subprocess.run(command, capture_output=True, text=True, env=environment)
    if built.returncode:
        errors = "\n".join(line for line in built.stderr.splitlines() if "error" in line) or built.stderr
        raise AcceleratorError(f"the part for PyTorch {torch.__version__} does not compile: {errors[:2000]}")
    os.replace(made, target)


def _cuda_headers(packages):
    """Returns folders with CUDA's headers: of NVIDIA's wheels, of a toolkit, or of ``ACCELERATOR_CUDA_INCLUDE``."""
    if named := os.environ.get("ACCELERATOR_CUDA_INCLUDE"):
        return named.split(os.pathsep)
    site = Path(sysconfig.get_paths()["purelib"])
    wheels = sorted({*site.glob("nvidia/*/include"), *packages.parent.glob("nvidia/*/include")})
    toolkit = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    return [*wheels, Path(toolkit) / "include"]
