"""The copy of the sources in which faults are made."""

import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]


def copy_sources(tree):
    """Copies what has changed, so that little is compiled again."""
    ignored = shutil.ignore_patterns(".git", "target", "__pycache__")

    def copy(source, target):
        text = pathlib.Path(source).read_bytes()
        target = pathlib.Path(target)
        if not target.exists() or target.read_bytes() != text:
            target.write_bytes(text)

    shutil.copytree(ROOT, tree, ignore=ignored, copy_function=copy, dirs_exist_ok=True)
