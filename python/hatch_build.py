"""Builds what the wheel contains beside Python: the libraries of C functions, the program `accel`, and the parts for
each version of PyTorch that `ACCELERATOR_PREBUILD` names.

That is a list of versions, separated by colons. It needs a C++ compiler, and PyPI.
"""

import importlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
WORKSPACE = HERE.parent / "Cargo.toml"
PROFILE = "wheel"
PACKAGE = "accelerator_alloc"


class Build(BuildHookInterface):
    def initialize(self, version, build_data):
        if not WORKSPACE.exists():
            raise RuntimeError("the wheel is built in a copy of the repository, because it contains programs in Rust")
        target, released = workspace()
        if self.metadata.version != released:
            raise RuntimeError(f"{PACKAGE} has version {self.metadata.version}, and the workspace {released}")
        # Both libraries have the same name until one is renamed.
        build("accelerator-torch", "--no-default-features", "--features=host")
        cpu = target / PROFILE / "libaccelerator_torch_cpu.so"
        shutil.copy(target / PROFILE / "libaccelerator_torch.so", cpu)
        build("accelerator-torch")
        # A report needs no device and no test, so the program has neither.
        build("accelerator-cli", "--no-default-features")
        made = {target / PROFILE / name: name for name in ("libaccelerator_torch.so", cpu.name, "accel")}
        prebuilt = target / PROFILE / "prebuilt"
        prebuilt.mkdir(exist_ok=True)
        for pytorch in filter(None, os.environ.get("ACCELERATOR_PREBUILD", "").split(":")):
            made |= {part: f"prebuilt/{part.name}" for part in prebuild(pytorch, prebuilt)}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(made)}"
        for file, name in made.items():
            build_data["force_include"][str(file)] = f"{PACKAGE}/{name}"


def workspace():
    """Returns the folder for what cargo builds, and the version of the packages."""
    command = ["cargo", "metadata", "--no-deps", "--format-version=1", f"--manifest-path={WORKSPACE}"]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    versions = {package["name"]: package["version"] for package in metadata["packages"]}
    return Path(metadata["target_directory"]), versions["accelerator-torch"]


def build(package, *features):
    command = ["cargo", "build", "--locked", f"--profile={PROFILE}", f"--manifest-path={WORKSPACE}"]
    subprocess.run([*command, f"--package={package}", *features], check=True)


def prebuild(version, folder):
    """Compiles the parts for this version of PyTorch. Returns their files."""
    sys.path.insert(0, str(HERE))
    subclass = importlib.import_module(f"{PACKAGE}._subclass")
    with tempfile.TemporaryDirectory() as packages:
        importlib.import_module("pytorch_headers").fetch(version, packages)
        torch = Path(packages) / "torch"
        full = re.search(r"^__version__ = '(.*)'$", (torch / "version.py").read_text(), re.M)[1]  # such as 2.15.0+cu132
        parts = [folder / subclass.name(full, kind) for kind in subclass.KINDS]
        for kind, part in zip(subclass.KINDS, parts):
            subclass.build(full, kind, torch, part)
    return parts


def platform_tag(files):
    """Returns the tag of the systems whose C library is new enough for these files."""
    # Each version of glibc that a file needs is a text in its table of dynamic symbols.
    needed = [version for file in files for version in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\0])", file.read_bytes())]
    major, minor = max((int(major), int(minor)) for major, minor in needed)
    return f"manylinux_{major}_{minor}_{platform.machine()}"
