"""Pickles the same snapshot in all protocols and variants: ages.py SNAPSHOT FOLDER."""

import collections
import copy
import pickle
import pickletools
import sys

snapshot, folder = sys.argv[1:]
with open(snapshot, "rb") as file:
    whole = pickle.load(file)

reversed_keys = dict(reversed(whole.items()))
ordered = collections.OrderedDict(whole)
default = collections.defaultdict(list, whole)


# A snapshot of three devices: the second has no history, and the third has a part of the first one's.
(history,) = whole["device_traces"]
three = dict(whole, device_traces=[history, [], copy.deepcopy(history[:1500])])


def pure(value, protocol):
    """Uses the pickler written in Python, which adds elements one by one where the other adds them in batches."""
    with open(f"{folder}/pure{protocol}.pickle", "wb") as file:
        pickle._Pickler(file, protocol).dump(value)


for protocol in range(6):
    for name, value in dict(plain=whole, reversed=reversed_keys, ordered=ordered, default=default, three=three).items():
        data = pickle.dumps(value, protocol)
        with open(f"{folder}/{name}{protocol}.pickle", "wb") as file:
            file.write(data)
    with open(f"{folder}/optimized{protocol}.pickle", "wb") as file:
        file.write(pickletools.optimize(pickle.dumps(whole, protocol)))
    pure(whole, protocol)
