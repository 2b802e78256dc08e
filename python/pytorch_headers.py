"""Gets what the parts are compiled with from wheels on PyPI, without the rest: PyTorch has 540 MB, and this needs 5."""

import io
import json
import re
import urllib.request
import zipfile

INDEX = "https://pypi.org/simple"
CUDA = "13.2.86"
# What is needed of each wheel.
TORCH = re.compile(r"torch/(version\.py|lib/libc10(_cuda)?\.so|include/(c10|torch/headeronly)/.*[^/])")
HEADERS = re.compile(r"nvidia/cu13/include/.*[^/]")


class Remote(io.RawIOBase):
    """A file on a server, of which only the blocks that are used are fetched."""

    BLOCK = 1 << 20

    def __init__(self, url, size):
        self._url, self._size, self._at, self._blocks = url, size, 0, {}

    def seekable(self):
        return True

    def readable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self):
        return self._at

    def readinto(self, buffer):
        number, offset = divmod(self._at, self.BLOCK)
        part = self._block(number)[offset : offset + len(buffer)] if self._at < self._size else b""
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _block(self, number):
        if number not in self._blocks:
            start = number * self.BLOCK
            end = min(start + self.BLOCK, self._size) - 1
            request = urllib.request.Request(self._url, headers={"Range": f"bytes={start}-{end}"})
            with urllib.request.urlopen(request, timeout=120) as answer:
                if answer.status != 206:
                    raise OSError(f"{self._url}: the server sends only whole files")
                self._blocks[number] = answer.read()
        return self._blocks[number]


def fetch(version, folder):
    """Makes a folder with the part of PyTorch and CUDA that is needed, as `site-packages` has it."""
    _extract("torch", version, TORCH, folder)
    for project in ("nvidia-cuda-runtime", "nvidia-cuda-crt"):
        _extract(project, CUDA, HEADERS, folder)


def _extract(project, version, needed, folder):
    request = urllib.request.Request(f"{INDEX}/{project}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        files = json.load(answer)["files"]
    # The headers are the same for all Pythons.
    name = rf"{project.replace('-', '_')}-{re.escape(version)}-(cp311-cp311|py3-none)-manylinux.*_x86_64\.whl"
    wheel = next((file for file in files if re.fullmatch(name, file["filename"])), None)
    if wheel is None:
        raise ValueError(f"PyPI has no wheel of {project} {version} for this system")
    with zipfile.ZipFile(io.BufferedReader(Remote(wheel["url"], wheel["size"]), 1 << 16)) as archive:
        archive.extractall(folder, filter(needed.fullmatch, archive.namelist()))
