"""The generated part of a document: what stands between two lines of comment."""
from .failure import Failure

BEGIN = "<!-- side-by-side: begin -->"
END = "<!-- side-by-side: end -->"


def write(path, part):
    path.write_text(with_part(path, part), encoding="utf-8")


def with_part(path, part):
    """What the file would be with another part."""
    try:
        return replaced(path.read_text(encoding="utf-8"), part)
    except FileNotFoundError:
        raise Failure(f"there is no {path} to write into: is the clone complete?") from None
    except ValueError as error:
        raise Failure(f"{path} stays as it was: {error}") from None


def replaced(text, part):
    """The text with another part; all else stays as it is."""
    lines = text.split("\n")
    for marker in [BEGIN, END]:
        if lines.count(marker) != 1:
            raise ValueError(f"the line `{marker}` is in it {lines.count(marker)} times: it must be there once")
    begin, end = lines.index(BEGIN), lines.index(END)
    if end < begin:
        raise ValueError(f"`{END}` is ahead of `{BEGIN}`: put it behind")
    return "\n".join([*lines[:begin + 1], "", part.strip("\n"), "", *lines[end:]])
