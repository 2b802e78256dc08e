"""Puts many mutants into one build. An environment variable chooses which of them a process runs."""

import json
import pathlib
import subprocess

# Which mutant runs; 0 is none.
VARIABLE = "ACCELERATOR_MUTANT"

# A file that gets the number of each function with mutants that a process calls, as four bytes.
REACHED = "ACCELERATOR_MUTANTS_REACHED"

CHOSEN = f"""
pub(crate) fn chosen_mutant(function: usize) -> u32 {{
    use std::sync::atomic::{{AtomicBool, AtomicU32, Ordering}};
    const RECORDS: u32 = u32::MAX - 1;
    static CHOSEN: AtomicU32 = AtomicU32::new(u32::MAX);
    static REACHED: [AtomicBool; 1 << 16] = [const {{ AtomicBool::new(false) }}; 1 << 16];
    let mut chosen = CHOSEN.load(Ordering::Relaxed);
    if chosen == u32::MAX {{
        let read = std::env::var("{VARIABLE}").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        chosen = if std::env::var_os("{REACHED}").is_some() {{ RECORDS }} else {{ read }};
        CHOSEN.store(chosen, Ordering::Relaxed);
    }}
    if chosen != RECORDS {{
        return chosen;
    }}
    if !REACHED[function].swap(true, Ordering::Relaxed) {{
        let file = std::env::var_os("{REACHED}").map(|path| std::fs::OpenOptions::new().append(true).open(path));
        if let Some(Ok(mut file)) = file {{
            let _ = std::io::Write::write(&mut file, &(function as u32).to_ne_bytes());
        }}
    }}
    0
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

    def __init__(self, path, mutants, first):
        """The functions are numbered from `first` on."""
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
        self.numbers = {body: number for number, body in enumerate(functions, first)}

    def write(self, unviable):
        """Writes the file without the mutants that do not compile."""
        parts, done = [], 0
        self.arms = []  # the first and last line of each mutant
        line = 1

        def add(part):
            nonlocal line
            parts.append(part)
            line += part.count("\n")

        for body, mutants in sorted(self.functions.items()):
            begin, finish = body
            viable = [mutant for mutant in mutants if mutant[0]["id"] not in unviable]
            if not viable:
                continue
            add(f"{self.original[done:begin]} match crate::chosen_mutant({self.numbers[body]}) {{\n")
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
    """Puts the mutants into the tree. Returns those that do not compile, those left out, and the others' functions."""
    by_file = {}
    for mutant in mutants:
        by_file.setdefault(mutant["file"], []).append(mutant)
    files, functions = {}, 0
    for name, mutants in by_file.items():
        files[name] = File(tree / name, mutants, functions)
        functions += len(files[name].functions)
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
    function_of = {
        mutant["id"]: file.numbers[body]
        for file in files.values()
        for body, mutants in file.functions.items()
        for mutant, _, _ in mutants
    }
    return unviable, left_out, function_of
