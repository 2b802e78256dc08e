"""Checks that two pickles are equal, apart from what only we write: same.py A B."""

import pickle
import sys


def ordered(value):
    """Returns the value with the keys of dictionaries sorted, since their order in a snapshot has no meaning."""
    if isinstance(value, dict):
        return {key: ordered(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return type(value)(map(ordered, value))
    return value


def load(name):
    with open(name, "rb") as file:
        return pickle.load(file)


a, b = map(load, sys.argv[1:])
b.pop("accelerator", None)
assert list(a) == list(b), (list(a), list(b))
for key in a:
    assert repr(ordered(a[key])) == repr(ordered(b[key])), f"{key} differs"
print("equal")
