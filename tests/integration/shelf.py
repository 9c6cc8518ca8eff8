"""Names and versions -> wheels and source archives in a folder that package tools take for an index."""

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path


class Shelf:
    """A folder of wheels that the test made. `sha256` tells the digest of a file in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def add(
        self,
        name: str,
        version: str,
        *needs: str,
        tag: str = "py3-none-any",
        text: str = "",
        more: Mapping[str, str] | None = None,
    ) -> Path:
        """A wheel. `more` are files beside its package."""
        path = self.folder / f"{name}-{version}-{tag}.whl"
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        files = {
            f"{name}/__init__.py": f"__version__ = {version!r}\nTEXT = {text!r}\n",
            f"{name}/tests/__init__.py": "",
            f"{name}/template.py": "this is {no} Python\n",
            f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {need}\n" for need in needs),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
            f"{info}/entry_points.txt": f"[console_scripts]\n{name}-command = {name}:print\n",
            **(more or {}),
        }
        lines = []
        for member, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{member},sha256={digest},{len(content)}")
        files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in files.items():
                archive.writestr(member, content)
        return path

    def add_source(self, name: str, version: str, mark: Path) -> Path:
        """A source archive whose own builder leaves `mark` behind when it is started."""
        wheel = self.add(name, version)
        backend = (
            "import pathlib, shutil\n"
            f"pathlib.Path({str(mark)!r}).touch()\n"
            "def build_wheel(folder, *_):\n"
            f"    shutil.copy(pathlib.Path(__file__).with_name('built.whl'), pathlib.Path(folder, {wheel.name!r}))\n"
            f"    return {wheel.name!r}\n"
        )
        project = f"[project]\nname = {name!r}\nversion = {version!r}\n"
        members = {
            "pyproject.toml": project
            + '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
            "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            "backend.py": backend,
            "built.whl": wheel.read_bytes(),
        }
        wheel.unlink()
        path = self.folder / f"{name}-{version}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for member, content in members.items():
                data = content.encode() if isinstance(content, str) else content
                header = tarfile.TarInfo(f"{name}-{version}/{member}")
                header.size = len(data)
                archive.addfile(header, io.BytesIO(data))
        return path

    def sha256(self, path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()
