"""Provides the recorded traces of real models as text for both sides."""
import shutil
import subprocess

from .failure import Failure

RECORDED = ["tests/data/models", "crates/accelerator-cli/traces", "tests/data/jobs"]
# At the end both sides print their state, which must be equal.
LAST_LINES = b"stats\nsnapshot\n"


def traces(root, cache, folders):
    """Returns the names and files of the traces in these folders."""
    paths = [path for folder in folders for path in root.glob(f"{folder}/*.trace.zst")]
    found = sorted(paths, key=lambda path: path.name)
    if not found:
        raise Failure(f"no traces below {root}: is the clone complete?")
    folder = cache / "traces"
    folder.mkdir(exist_ok=True)
    texts = {}
    for path in found:
        name = path.name.split(".")[0]
        texts[name] = folder / f"{name}.trace"
        texts[name].write_bytes(decompressed(path).rstrip(b"\n") + b"\n" + LAST_LINES)
    return texts


def decompressed(path):
    try:
        from compression import zstd  # since Python 3.14
    except ImportError:
        if not shutil.which("zstd"):
            raise Failure("needs the program zstd, or Python 3.14, to read the traces; on Debian: "
                          "apt-get install zstd") from None
        return subprocess.run(["zstd", "--decompress", "--stdout", path], check=True, stdout=subprocess.PIPE).stdout
    return zstd.decompress(path.read_bytes())
