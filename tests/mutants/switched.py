"""Puts many mutants into one build. An environment variable chooses which of them a process runs."""

import json
import pathlib
import subprocess

# Which mutant runs; 0 is none.
VARIABLE = "ACCELERATOR_MUTANT"

CHOSEN = f"""
pub(crate) fn chosen_mutant() -> u32 {{
    use std::sync::atomic::{{AtomicU32, Ordering}};
    static CHOSEN: AtomicU32 = AtomicU32::new(u32::MAX);
    let chosen = CHOSEN.load(Ordering::Relaxed);
    if chosen != u32::MAX {{
        return chosen;
    }}
    let read = std::env::var("{VARIABLE}").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    CHOSEN.store(read, Ordering::Relaxed);
    read
}}
"""


def offset(lines, place):
    """The position in the text of a line and column, which count characters from 1."""
    return sum(map(len, lines[: place["line"] - 1])) + place["column"] - 1


def body_of(text, start, end):
    """Where the body of the function in this range is, without its braces; `None` if it cannot be switched."""
    head = text[start:end]
    at = 0
    while head[at:].lstrip().startswith(("//", "#[")):
        at = head.index("\n", head.index(head[at:].lstrip(), at)) + 1
    opening, depth = at, 0
    while head[opening] != "{" or depth:  # parameters may have braces
        depth += {"(": 1, ")": -1}.get(head[opening], 0)
        opening += 1
    signature = head[at:opening]
    # A constant function cannot read a variable, and the arms of a `match` must have one type.
    if "const fn" in signature or "-> impl" in signature or "<impl" in signature:
        return None
    return start + opening + 1, end - 1


class File:
    """A source file with its mutants."""

    def __init__(self, path, mutants):
        self.path = path
        self.original = path.read_text()
        lines = self.original.splitlines(keepends=True)
        functions = {}
        self.left_out = []
        for mutant in mutants:
            span = mutant.get("function") and mutant["function"]["span"]
            where = span and tuple(offset(lines, span[end]) for end in ("start", "end"))
            body = where and body_of(self.original, *where)
            if not body:
                self.left_out.append(mutant)
                continue
            start, end = (offset(lines, mutant["span"][end]) for end in ("start", "end"))
            functions.setdefault(body, []).append((mutant, start, end))
        # A function inside another one would be copied with it.
        for inner in list(functions):
            if any(outer != inner and outer[0] <= inner[0] and inner[1] <= outer[1] for outer in functions):
                self.left_out += [mutant for mutant, _, _ in functions.pop(inner)]
        self.functions = functions

    def write(self, unviable):
        """Writes the file without the mutants that do not compile."""
        parts, done = [], 0
        self.arms = []  # the first and last line of each mutant
        line = 1

        def add(part):
            nonlocal line
            parts.append(part)
            line += part.count("\n")

        for (begin, finish), mutants in sorted(self.functions.items()):
            viable = [mutant for mutant in mutants if mutant[0]["id"] not in unviable]
            if not viable:
                continue
            add(self.original[done:begin] + " match crate::chosen_mutant() {\n")
            for mutant, start, end in viable:
                first = line
                changed = self.original[begin:start] + mutant["replacement"] + self.original[end:finish]
                add(f"{mutant['id']} => {{{changed}}}\n")
                self.arms.append((first, line - 1, mutant["id"]))
            add("_ => {" + self.original[begin:finish] + "}\n}")
            done = finish
        add(self.original[done:])
        # Copies of what is always inlined would multiply.
        self.path.write_text("".join(parts).replace("#[inline(always)]", "#[inline]"))


def mutants_at(tree, files, span):
    """The mutants to which a place in a message of the compiler belongs, in the outermost macro call."""
    while span.get("expansion"):
        span = span["expansion"]["span"]
    file = files.get(str(pathlib.Path(span["file_name"])))
    if not file:
        return set()
    return {mutant for first, last, mutant in file.arms if first <= span["line_start"] <= last}


def make(tree, subject, mutants, environment):
    """Puts the mutants into the tree. Returns the numbers of those that do not compile, and those left out."""
    by_file = {}
    for mutant in mutants:
        by_file.setdefault(mutant["file"], []).append(mutant)
    files = {name: File(tree / name, mutants) for name, mutants in by_file.items()}
    library = tree / subject.sources / "lib.rs"
    # These lints come only after what `cargo check` does.
    library.write_text("#![allow(arithmetic_overflow, unconditional_panic)]\n" + library.read_text() + CHOSEN)
    unviable = set()
    while True:
        for file in files.values():
            file.write(unviable)
        check = ["cargo", "check", "--package", subject.package, "--lib", "--message-format", "json"]
        checked = subprocess.run(check, cwd=tree, env=environment, text=True, capture_output=True)
        if checked.returncode == 0:
            break
        found, strange = set(), []
        for message in map(json.loads, checked.stdout.splitlines()):
            message = message.get("message", {})
            if not isinstance(message, dict) or message.get("level") != "error" or not message["spans"]:
                continue
            of = set().union(*(mutants_at(tree, files, span) for span in message["spans"] if span["is_primary"]))
            of = of or set().union(*(mutants_at(tree, files, span) for span in message["spans"]))
            found |= of
            if not of:
                strange.append(message["rendered"])
        if not found:
            raise SystemExit("\n".join(strange) + checked.stderr[-2000:])
        unviable |= found
        print(f"{len(unviable)} do not compile", flush=True)
    left_out = {mutant["id"] for file in files.values() for mutant in file.left_out}
    return unviable, left_out
