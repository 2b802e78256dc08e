"""Builds stand-ins for NVIDIA's libraries, so that PyTorch's CUDA wheel runs on the simulated driver, without a GPU and
without the 3 GB of packages that it depends on.

    build.py DRIVER CUDA_HEADERS...

DRIVER is the simulated libcuda. Run it with the Python whose PyTorch is to be served: the libraries go where that looks
for them. What no source here defines is generated: a function that does nothing and returns 0.
"""

import collections
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
# Each library with functions of its own: the source, and the part of it.
WRITTEN = {
    "libcudart.so.13": ("runtime.cpp", "RUNTIME"),
    "libcublas.so.13": ("mathematics.cpp", "CUBLAS"),
    "libcublasLt.so.13": ("mathematics.cpp", "CUBLASLT"),
    "libcudnn.so.9": ("mathematics.cpp", "CUDNN"),
    "libnvidia-ml.so.1": ("management.cpp", "NVML"),
}
# Symbols without a version, by how their names begin.
UNVERSIONED = {
    "nccl": "libnccl.so.2",
    "cusparseLt": "libcusparseLt.so.0",
    "cuFile": "libcufile.so.0",
    "nvshmem": "libnvshmem_host.so.3",
}
DRIVER = "libcuda.so.1"


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needed(libraries):
    """Returns the names of NVIDIA's libraries that these need, each with the symbols that they use."""
    symbols = collections.defaultdict(set)
    for library in libraries:
        for name in re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl)[^\]]*)\]", output("readelf", "-d", library)):
            symbols[name] |= set()
        for line in output("nm", "-D", "--undefined-only", library).splitlines():
            name, _, version = line.split()[-1].partition("@")
            others = [whose for start, whose in UNVERSIONED.items() if name.startswith(start)]
            whose = version if version.startswith("lib") else next(iter(others), None)
            if whose:
                symbols[whose].add(name)
    symbols["libnvidia-ml.so.1"] |= set()  # loaded by name
    return symbols


def compile_library(name, symbols, target, includes, scratch):
    source, part = WRITTEN.get(name, (None, None))
    command = ["g++", "-O2", "-fPIC", "-std=c++17", "-w", "-shared", f"-Wl,-soname,{name}"]
    command += [f"-I{folder}" for folder in includes]
    defined = set()
    if source:
        command += [f"-D{part}", str(HERE / source)]
        text = (HERE / source).read_text()
        own = text.split(f"#ifdef {part}\n")[-1].split("#endif")[0] if "#ifdef" in text else text
        defined = set(re.findall(r"^API .*?(\w+)\(", own, re.M))
    generated = scratch / "generated.cpp"
    generated.write_text("".join(f'extern "C" long {symbol}() {{ return 0; }}\n' for symbol in sorted(symbols - defined)))
    # PyTorch asks for versioned symbols of these libraries.
    version = "NVSHMEM" if "nvshmem" in name else name
    versions = scratch / "versions"
    versions.write_text(f"{version} {{ global: *; }};\n" if symbols else "{ global: *; };\n")
    command += [f"-Wl,--version-script={versions}", "-fno-builtin", str(generated), "-o", str(target / name), "-ldl"]
    subprocess.run(command, check=True)


def main(driver, *includes):
    torch = Path(importlib.util.find_spec("torch").origin).parent
    target = torch.parent / "nvidia" / "cu13" / "lib"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, symbols in sorted(needed(torch.glob("lib/*.so")).items()):
            if name == DRIVER:
                (target / name).unlink(missing_ok=True)
                (target / name).symlink_to(Path(driver).resolve())
            else:
                compile_library(name, symbols, target, includes, Path(scratch))


main(*sys.argv[1:])
