"""Finds or compiles the part that depends on PyTorch's version."""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from . import _library
from ._error import AcceleratorError

_HERE = Path(__file__).parent
# Each kind of device: the sources, of which the first is compiled, and the libraries of PyTorch that it is linked with.
_PARTS = {
    "cuda": (("subclass.cpp", "records.h", "accelerator_torch.h"), ("c10_cuda", "c10")),
    "cpu": (("cpu.cpp", "accelerator_torch.h"), ("c10",)),
}
KINDS = tuple(_PARTS)


def load(torch, kind):
    """Loads the compiled part for this PyTorch and a kind of device: the wheel's, or that of the user's cache, which is
    compiled once.

    :raises AcceleratorError: if it is neither there nor can be compiled
    """
    prebuilt = _HERE / "prebuilt" / name(torch.__version__, kind)
    try:
        return ctypes.CDLL(str(prebuilt))
    except OSError:
        # The wheel has none for this PyTorch, or the C++ library of this system is too old for it.
        return _library.opened(_kept(torch, kind))


def name(version, kind):
    """Returns the file name of the compiled part for this version of PyTorch and a kind of device."""
    digest = hashlib.sha256(version.encode())
    for source in _PARTS[kind][0]:
        digest.update((_HERE / source).read_bytes())
    return f"{kind}-{digest.hexdigest()[:16]}.so"


def _kept(torch, kind):
    kept = _cache() / name(torch.__version__, kind)
    try:
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            # Several processes may do this at once. The last one to finish wins, and all results are the same.
            with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
                made = Path(folder) / kept.name
                build(torch.__version__, kind, Path(torch.__file__).parent, made)
                os.replace(made, kept)
    except OSError as error:
        raise AcceleratorError(f"the part for PyTorch {torch.__version__} cannot be built: {error}") from error
    return str(kept)


def _cache():
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "accelerator-alloc"


def build(version, kind, packages, target):
    """Compiles the part for the PyTorch of this version in the folder ``packages``.

    :raises AcceleratorError: if there is no compiler, or it fails
    """
    compiler = shlex.split(os.environ.get("CXX", "")) or [shutil.which("c++") or shutil.which("g++")]
    if not compiler[0]:
        raise AcceleratorError(f"there is no C++ compiler to build the part for PyTorch {version}: install g++")
    (source, *_), libraries = _PARTS[kind]
    includes = [packages / "include", *(_cuda_headers(packages) if kind == "cuda" else [])]
    command = [*compiler, "-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", *(f"-I{folder}" for folder in includes)]
    command += [str(_HERE / source), f"-L{packages / 'lib'}", *(f"-l{library}" for library in libraries), "-o", str(target)]
    # A preloaded driver, such as a simulated one, is not for the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    built = subprocess.run(command, capture_output=True, text=True, env=environment)
    if built.returncode:
        errors = "\n".join(line for line in built.stderr.splitlines() if "error" in line) or built.stderr
        raise AcceleratorError(f"the part for PyTorch {version} does not compile: {errors[:2000]}")


def _cuda_headers(packages):
    """Returns folders with CUDA's headers: of NVIDIA's wheels, of a toolkit, or of ``ACCELERATOR_CUDA_INCLUDE``."""
    if named := os.environ.get("ACCELERATOR_CUDA_INCLUDE"):
        return named.split(os.pathsep)
    site = Path(sysconfig.get_paths()["purelib"])
    wheels = sorted({*site.glob("nvidia/*/include"), *packages.parent.glob("nvidia/*/include")})
    toolkit = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    return [*wheels, Path(toolkit) / "include"]
