"""Builds what the wheel contains beside Python: the library of C functions, the program `accel`, and the part for each
PyTorch that `ACCELERATOR_PREBUILD` names.

That is a list of Pythons, separated by colons, into which PyTorch is installed. It needs a C++ compiler.
"""

import importlib
import json
import os
import platform
import re
import subprocess
import sys
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
        build("accelerator-torch")
        # A report needs no device, so the program has no backends.
        build("accelerator-cli", "--no-default-features")
        made = {target / PROFILE / name: name for name in ("libaccelerator_torch.so", "accel")}
        prebuilt = target / PROFILE / "prebuilt"
        prebuilt.mkdir(exist_ok=True)
        for python in filter(None, os.environ.get("ACCELERATOR_PREBUILD", "").split(os.pathsep)):
            part = prebuild(python, prebuilt)
            made[part] = f"prebuilt/{part.name}"
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


def prebuild(python, folder):
    """Compiles the part for the PyTorch of this Python. Returns its file."""
    # PyTorch need not work here, so it is found without being imported.
    find = "import importlib.metadata as m; print(m.distribution('torch').locate_file('torch'))"
    packages = Path(subprocess.run([python, "-c", find], check=True, capture_output=True, text=True).stdout.strip())
    version = re.search(r"^__version__ = '(.*)'$", (packages / "version.py").read_text(), re.M)[1]
    sys.path.insert(0, str(HERE))
    subclass = importlib.import_module(f"{PACKAGE}._subclass")
    part = folder / subclass.name(version)
    subclass.build(version, packages, part)
    return part


def platform_tag(files):
    """Returns the tag of the systems whose C library is new enough for these files."""
    # Each version of glibc that a file needs is a text in its table of dynamic symbols.
    needed = [version for file in files for version in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\0])", file.read_bytes())]
    major, minor = max((int(major), int(minor)) for major, minor in needed)
    return f"manylinux_{major}_{minor}_{platform.machine()}"
