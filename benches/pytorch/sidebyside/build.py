"""Builds both sides: PyTorch's allocator on the simulated device, and `accel`."""
import hashlib
import json
import pathlib
import shutil
import subprocess
import tempfile
from typing import NamedTuple

from .failure import Failure, finished, output_of

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
CPP = ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra"]
LIBRARY = ["-fPIC", "-shared", "-fvisibility=hidden"]


class Built(NamedTuple):
    bench: pathlib.Path
    replay: pathlib.Path
    accel: pathlib.Path


def build(fetched, cache):
    folder = torch_programs(fetched, cache)
    return Built(folder / "torch_bench", folder / "torch_replay", accel())


def torch_programs(fetched, cache):
    """Returns the folder with the programs. Rebuilds it if a source, the compiler or a fetched package changed."""
    folder = cache / ("programs-" + fingerprint(fetched))
    if not folder.is_dir():
        for old in cache.glob("programs-*"):
            shutil.rmtree(old)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            scratch = pathlib.Path(scratch)
            compile_all(fetched, scratch / "programs")
            (scratch / "programs").rename(folder)
    return folder


def compile_all(fetched, folder):
    # PyTorch's library looks for its dependencies in its own folder.
    libraries = folder / "lib"
    libraries.mkdir(parents=True)
    for name in ["libc10.so", "libc10_cuda.so"]:
        shutil.copy(fetched.libraries / name, libraries)
    include = [f"-I{path}" for path in [HERE / "device", *fetched.include]]
    output_of([*CPP, *LIBRARY, *include, "-Wl,-soname,libcudart.so.13",
               f"-Wl,--version-script={HERE / 'device/cudart_sim.map'}", "-o", libraries / "libcudart.so.13",
               *sorted(HERE.glob("device/*.cpp"))])
    output_of(["gcc", "-O2", "-Wall", "-fPIC", "-shared", "-Wl,-soname,libnvidia-ml.so.1",
               "-o", libraries / "libnvidia-ml.so.1", HERE / "device/nvml_sim.c"])
    for program in ["torch_bench", "torch_replay"]:
        output_of([*CPP, "-DNDEBUG", "-Wno-unused-parameter", *include, "-o", folder / program,
                   HERE / f"programs/{program}.cpp", f"-L{libraries}", "-lc10_cuda", "-lc10", "-l:libcudart.so.13",
                   "-Wl,-rpath,$ORIGIN/lib", "-pthread"])


def fingerprint(fetched):
    digest = hashlib.sha256(output_of(["g++", "--version"])[0].encode())
    digest.update(str(fetched).encode())
    sources = [*HERE.glob("device/*"), *HERE.glob("programs/*"), pathlib.Path(__file__)]
    for source in sorted(sources):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def accel():
    """Builds our program; cargo reports its path."""
    command = ["cargo", "build", "--release", "--locked", "--package", "accelerator-cli", "--bin", "accel",
               "--message-format", "json-render-diagnostics"]
    done = finished(command, cwd=ROOT, stdout=subprocess.PIPE)  # its messages for people go to the terminal
    if done.returncode != 0:
        raise Failure("cargo could not build `accel`: see above")
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["executable"]:
            return pathlib.Path(message["executable"])
    raise Failure("cargo did not report the path of `accel`")
