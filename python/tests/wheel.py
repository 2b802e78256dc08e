"""Checks a wheel, and what it does where PyTorch is missing.

    wheel.py WHEEL

Run it with a Python into which nothing but this wheel is installed.
"""

import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import zipfile
from pathlib import Path

WHEEL = Path(sys.argv.pop())
SOURCES = Path(__file__).parent.parent / "accelerator_alloc"
BINARIES = ("libaccelerator_torch.so", "libaccelerator_torch_cpu.so", "accel")
# The libraries that every Linux has which manylinux allows.
SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Wheel(unittest.TestCase):
    def test_it_is_small(self):
        self.assertLess(WHEEL.stat().st_size, 5_000_000)

    def test_its_contents_are_the_package_its_binaries_and_the_licences(self):
        name = "-".join(WHEEL.name.split("-")[:2])
        expected = {f"accelerator_alloc/{file.name}" for file in SOURCES.iterdir() if file.is_file()}
        expected |= {f"accelerator_alloc/{binary}" for binary in BINARIES}
        information = ("METADATA", "RECORD", "WHEEL", "entry_points.txt")
        licences = ("LICENSE-APACHE", "LICENSE-MIT", "LICENSE-sans.txt")
        expected |= {f"{name}.dist-info/{file}" for file in information}
        expected |= {f"{name}.dist-info/licenses/{file}" for file in licences}
        names = {name for name in zipfile.ZipFile(WHEEL).namelist() if "/prebuilt/" not in name}
        self.assertEqual(names, expected)

    def test_it_has_the_parts_for_three_versions(self):
        parts = [name.split("/")[-1].split("-")[0] for name in zipfile.ZipFile(WHEEL).namelist() if "/prebuilt/" in name]
        self.assertEqual(sorted(parts), 3 * ["cpu"] + 3 * ["cuda"])

    def test_it_contains_the_texts_of_its_licences(self):
        with zipfile.ZipFile(WHEEL) as wheel:
            texts = [wheel.read(name).decode() for name in wheel.namelist() if "/licenses/" in name]
        self.assertTrue(all("\n" in text and "Copyright" in text for text in texts), texts)

    def test_its_tag_is_the_newest_glibc_that_its_binaries_need(self):
        versions, libraries = set(), set()
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(WHEEL) as wheel:
            for name in wheel.namelist():
                if name.endswith((".so", "/accel")):
                    file = wheel.extract(name, folder)
                    versions |= set(re.findall(r"Name: GLIBC_(\d+)\.(\d+)", output("readelf", "--version-info", file)))
                    if Path(name).name in BINARIES:
                        libraries |= set(re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "--dynamic", file)))
        newest = max((int(major), int(minor)) for major, minor in versions)
        machine = sysconfig.get_platform().split("-")[-1]
        self.assertEqual(WHEEL.stem.split("-", 2)[2], "py3-none-manylinux_{}_{}_{}".format(*newest, machine))
        self.assertLessEqual(libraries, SYSTEM)


class Installed(unittest.TestCase):
    def test_the_versions_are_one(self):
        import accelerator_alloc

        version = accelerator_alloc.__version__
        self.assertEqual(importlib.metadata.version("accelerator-alloc"), version)
        self.assertEqual(output(Path(sys.executable).parent / "accel", "--version"), f"accel {version}\n")

    def test_it_needs_no_other_package(self):
        self.assertIsNone(importlib.metadata.requires("accelerator-alloc"))

    def test_the_library_takes_settings(self):
        import accelerator_alloc

        library = accelerator_alloc._library.load()
        self.assertEqual(library.accelerator_torch_configure(b"policy:compact"), 0)
        self.assertNotEqual(library.accelerator_torch_configure(b"no_such_setting:1"), 0)
        self.assertIn(b"no_such_setting", library.accelerator_torch_last_error())

    def test_it_says_that_pytorch_is_missing(self):
        import accelerator_alloc

        for function in (accelerator_alloc.install, accelerator_alloc.tracker):
            with self.assertRaisesRegex(accelerator_alloc.AcceleratorError, "PyTorch cannot be imported: .*'torch'"):
                function()
        self.assertFalse(accelerator_alloc.is_installed())


if __name__ == "__main__":
    unittest.main()
