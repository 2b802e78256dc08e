"""Tests of the generated part of a document."""
import pathlib
import tempfile
import unittest

from sidebyside import document
from sidebyside.document import BEGIN, END
from sidebyside.failure import Failure

TEXT = f"# A\n\n{BEGIN}\nold\n\n| old |\n{END}\n\nrest  \n{BEGIN} is a marker\n"


class Replaced(unittest.TestCase):
    def test_the_part_is_new_and_the_rest_as_it_was(self):
        expected = f"# A\n\n{BEGIN}\n\nnew\n\n| new |\n\n{END}\n\nrest  \n{BEGIN} is a marker\n"
        self.assertEqual(document.replaced(TEXT, "\nnew\n\n| new |\n"), expected)
        self.assertEqual(document.replaced(expected, "new\n\n| new |"), expected)

    def test_an_empty_part_is_filled(self):
        self.assertEqual(document.replaced(f"{BEGIN}\n{END}", "new"), f"{BEGIN}\n\nnew\n\n{END}")

    def test_markers_that_are_missing_doubled_or_turned_are_refused(self):
        for text, what in [
            ("# A\n", "0 times"),
            (f"{BEGIN}\n", "0 times"),
            (f"{BEGIN}\n{BEGIN}\n{END}\n", "2 times"),
            (f" {BEGIN}\n{END}\n", "0 times"),
            (f"{END}\n{BEGIN}\n", "precedes"),
        ]:
            with self.assertRaisesRegex(ValueError, what):
                document.replaced(text, "new")


class Write(unittest.TestCase):
    def test_a_file_without_markers_stays_as_it_was(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.md"
            with self.assertRaisesRegex(Failure, "there is no .*a.md"):
                document.write(path, "new")
            path.write_text("# A\n")
            with self.assertRaisesRegex(Failure, "a.md was not changed: .* 0 times"):
                document.write(path, "new")
            self.assertEqual(path.read_text(), "# A\n")
            path.write_text(TEXT)
            document.write(path, "new")
            self.assertEqual(path.read_text(), document.replaced(TEXT, "new"))

    def test_the_document_of_the_project_has_its_markers(self):
        text = (pathlib.Path(__file__).resolve().parents[3] / "docs/BENCHMARKS.md").read_text(encoding="utf-8")
        self.assertIn(f"{BEGIN}\n\nnew\n\n{END}", document.replaced(text, "new"))
