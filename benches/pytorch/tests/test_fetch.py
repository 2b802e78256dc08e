"""Tests of existing wheels, correct and wrong ones."""
import hashlib
import pathlib
import tempfile
import unittest
import zipfile
from unittest import mock

from sidebyside import fetch
from sidebyside.failure import Failure

PACKAGE = fetch.Package("a-package", "1.2", "1 MB", "", ("a/include/", "a/lib/liba.so"))
FILES = ["a/include/a.h", "a/include/b/b.h", "a/lib/liba.so", "a/lib/other.so", "a_package-1.2.dist-info/METADATA"]


class Unpacked(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = pathlib.Path(folder.name) / "cache"
        self.cache.mkdir()
        self.wheel = pathlib.Path(folder.name) / "a_package-1.2-py3-none-any.whl"

    def write(self, names):
        with zipfile.ZipFile(self.wheel, "w") as archive:
            for name in names:
                archive.writestr(name, name)

    def test_only_what_is_wanted_is_unpacked_and_once(self):
        self.write(FILES)
        folder = fetch.unpacked(PACKAGE, self.cache, self.wheel)
        found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        self.assertEqual(found, FILES[:3])
        self.wheel.unlink()
        self.assertEqual(fetch.unpacked(PACKAGE, self.cache, self.wheel), folder)

    def test_wrong_wheels_are_refused_and_leave_nothing(self):
        wrong = [
            (FILES[:4] + ["a_package-1.3.dist-info/METADATA"], "is not a-package 1.2"),
            (FILES[:2] + FILES[4:], "has no a/lib/liba.so"),
        ]
        for names, what in wrong:
            self.write(names)
            with self.assertRaisesRegex(Failure, what):
                fetch.unpacked(PACKAGE, self.cache, self.wheel)
        self.wheel.write_bytes(self.wheel.read_bytes()[:100])
        with self.assertRaisesRegex(Failure, "damaged"):
            fetch.unpacked(PACKAGE, self.cache, self.wheel)
        self.wheel.unlink()
        with self.assertRaisesRegex(Failure, "there is no file"):
            fetch.unpacked(PACKAGE, self.cache, self.wheel)
        self.assertEqual(list(self.cache.iterdir()), [])

    def test_another_hash_is_refused(self):
        self.write(FILES)
        right = hashlib.sha256(self.wheel.read_bytes()).hexdigest()
        fetch.check(PACKAGE._replace(sha256=right), self.wheel)
        with self.assertRaisesRegex(Failure, "is not a-package 1.2 as on PyPI"):
            fetch.check(PACKAGE._replace(sha256=right[::-1]), self.wheel)

    def test_a_download_that_fails_says_what_to_do(self):
        failed = mock.Mock(returncode=1, stderr="ERROR: no network\n")
        with mock.patch.object(fetch, "finished", return_value=failed), \
             mock.patch.object(fetch, "pip", return_value=["pip"]), mock.patch("sys.stderr"):
            with self.assertRaisesRegex(Failure, "(?s)could not get a-package 1.2.*no network.*TORCH_WHEEL"):
                fetch.unpacked(PACKAGE, self.cache, None)
        self.assertEqual(list(self.cache.iterdir()), [])
