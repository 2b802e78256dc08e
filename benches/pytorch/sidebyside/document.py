"""The generated part of a document, between two comment lines."""
from .failure import Failure

BEGIN = "<!-- side-by-side: begin -->"
END = "<!-- side-by-side: end -->"


def write(path, part):
    path.write_text(with_part(path, part), encoding="utf-8")


def with_part(path, part):
    """Returns the text of the file with the generated part replaced."""
    try:
        return replaced(path.read_text(encoding="utf-8"), part)
    except FileNotFoundError:
        raise Failure(f"there is no {path} to write to: is the clone complete?") from None
    except ValueError as error:
        raise Failure(f"{path} was not changed: {error}") from None


def replaced(text, part):
    """Returns the text with the generated part replaced."""
    lines = text.split("\n")
    for marker in [BEGIN, END]:
        if lines.count(marker) != 1:
            raise ValueError(f"it contains the line `{marker}` {lines.count(marker)} times: it must contain it once")
    begin, end = lines.index(BEGIN), lines.index(END)
    if end < begin:
        raise ValueError(f"`{END}` precedes `{BEGIN}`: put it after")
    return "\n".join([*lines[:begin + 1], "", part.strip("\n"), "", *lines[end:]])
