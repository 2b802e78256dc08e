"""Fetches PyTorch's allocator and the headers of CUDA's runtime from PyPI, and checks their hashes."""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from typing import NamedTuple, Tuple

from .failure import Failure, finished, tail


class Package(NamedTuple):
    name: str
    version: str
    size: str
    sha256: str
    wanted: Tuple[str, ...]  # prefixes of the files to unpack


# One wheel whatever Python runs this, so that there is one hash.
TORCH = Package("torch", "2.15.0", "540 MB", "48c2d861134c0b5697c7602cb5ffa68f62a2989fdcd1717e593356f67996ca1e",
                ("torch/include/c10/", "torch/include/torch/headeronly/", "torch/lib/libc10.so",
                 "torch/lib/libc10_cuda.so"))
TAGS = ["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"]
# The versions that this PyTorch requires.
HEADERS = [
    Package("nvidia-cuda-runtime", "13.2.86", "2.3 MB",
            "3498247680dfddce31bad102af7e3e26fc795342a3cac64722bb0fa95e7f60f0", ("nvidia/cu13/include/",)),
    Package("nvidia-cuda-crt", "13.2.86", "0.1 MB",
            "e3ab08801bf9b1e6dc979275d25e816bb5000521b648e19c324d5eef0c79f1da", ("nvidia/cu13/include/",)),
]
INSTEAD = (f"Without access to PyPI, copy torch {TORCH.version} for Linux on x86-64 with CUDA from elsewhere, set "
           "TORCH_WHEEL to the file, and put the wheels of "
           f"{' and '.join(f'{package.name} {package.version}' for package in HEADERS)} next to it.")


class Fetched(NamedTuple):
    include: list
    libraries: pathlib.Path


def fetch(cache):
    """Downloads only what is not in the cache."""
    given = os.environ.get("TORCH_WHEEL")
    torch = unpacked(TORCH, cache, pathlib.Path(given).absolute() if given else None)
    include = [torch / "torch/include"]
    for package in HEADERS:
        beside = sorted(pathlib.Path(given).absolute().parent.glob(wheel_name(package))) if given else []
        if beside:
            check(package, beside[0])
        include.append(unpacked(package, cache, beside[0] if beside else None) / "nvidia/cu13/include")
    return Fetched(include, torch / "torch/lib")


def wheel_name(package):
    return f"{package.name.replace('-', '_')}-{package.version}-*.whl"


def check(package, wheel):
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != package.sha256:
        raise Failure(f"{wheel} is not {package.name} {package.version} as on PyPI: remove it to download it")


def unpacked(package, cache, wheel):
    """Returns the folder with the wanted files of the package, which is either complete or absent."""
    folder = cache / f"{package.name}-{package.version}"
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        scratch = pathlib.Path(scratch)
        unpack(package, wheel or downloaded(package, cache, scratch), scratch / "files")
        (scratch / "files").rename(folder)
    return folder


def unpack(package, wheel, folder):
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            if f"{package.name.replace('-', '_')}-{package.version}.dist-info/METADATA" not in names:
                raise Failure(f"{wheel} is not {package.name} {package.version}, the version to compare with")
            for begin in package.wanted:
                members = [name for name in names if name.startswith(begin)]
                if not members:
                    raise Failure(f"{wheel} has no {begin}: take the wheel for Linux on x86-64 with CUDA")
                archive.extractall(folder, members)
    except FileNotFoundError:
        raise Failure(f"there is no file {wheel}, as named by TORCH_WHEEL") from None
    except zipfile.BadZipFile:
        raise Failure(f"{wheel} is not a wheel, or is damaged: get it again") from None


def downloaded(package, cache, folder):
    print(f"downloading {package.name} {package.version}, {package.size}", file=sys.stderr)
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    command = [*pip(cache), "download", "--no-deps", "--only-binary=:all:", *TAGS, "--require-hashes", "--no-cache-dir",
               "--retries", "2", "--dest", folder, "-r", requirements]
    done = finished(command, stdout=sys.stderr, stderr=subprocess.PIPE)
    wheels = sorted(folder.glob(wheel_name(package)))
    if done.returncode != 0 or not wheels:
        errors = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("WARNING"))
        raise Failure(f"pip could not get {package.name} {package.version} from PyPI: is there a network?\n"
                      f"{tail(errors, 6)}\n{INSTEAD}")
    return wheels[0]


def pip(cache):
    """Returns the command for pip. Many systems have a Python without pip; a virtual environment contains one."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if finished([sys.executable, "-m", "pip", "--version"], **quiet).returncode == 0:
        return [sys.executable, "-m", "pip"]
    environment = cache / "venv"
    if not (environment / "bin/pip").exists():
        command = [sys.executable, "-m", "venv", "--clear", environment]
        done = finished(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise Failure("needs pip to download PyTorch, or venv, which contains it; on Debian: "
                          "apt-get install python3-venv\n"
                          f"{tail(done.stdout, 3)}")
    return [environment / "bin/python", "-m", "pip"]
