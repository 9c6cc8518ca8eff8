"""The address of a Docker-compatible engine -> facts about its images, containers that run, none left behind."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mlmodelscope.core.errors import DownloadError, EnvironmentMissingError, UnknownNameError, UnsatisfiableError
from mlmodelscope.core.settings import container_engines, home as own_home
from mlmodelscope.provision.containers.abilities import Abilities, Limit, docker_abilities, podman_abilities
from mlmodelscope.provision.containers.confinement import Allowance, cdi_describes_gpu, host_options, variables_of
from mlmodelscope.provision.containers.container import Container, Mount, remove_container
from mlmodelscope.provision.containers.image import ImageFacts, Interpreter, container_words
from mlmodelscope.provision.containers.owner import LABEL, has_died, owner_label
from mlmodelscope.provision.containers.search import search_image
from mlmodelscope.provision.containers.translation import explanation, is_absent, translating
from mlmodelscope.provision.durable import read_json, write_json

__all__ = ["Engine", "find_engine"]

_PING_SECONDS = 10
_CALL_SECONDS = 120
_SCHEMA = 1
_INTERPRETERS = TypeAdapter(tuple[Interpreter, ...])
_LIMITS = {"cpuset": "the set of processors", "memory": "memory", "pids": "the number of processes"}
_HOW_TO_LIMIT = (
    "run the engine with root's rights, or let systemd give its user the control groups: "
    "`Delegate=cpu cpuset io memory pids` for user@.service"
)
_HOW_TO_CONNECT = (
    "the container was to have a network: see whether the engine can make one (`podman network inspect podman`, "
    "`docker network inspect bridge`), or take `network` out of the manifest's attributes"
)
_HOW_TO_START = (
    "start Docker (`systemctl start docker`) or Podman (`podman system service --time=0 unix:///tmp/podman.sock`), "
    "and set DOCKER_HOST where it listens elsewhere"
)


def find_engine(home: Path | None = None) -> Engine:
    """The first engine that answers. EnvironmentMissingError: none does, or the Docker SDK is not installed.

    `home` is where facts of images are kept; by default the user's own.
    """
    tried: dict[str, str] = {}
    for address in container_engines():
        try:
            return Engine(address, own_home() if home is None else home)
        except EnvironmentMissingError as error:
            if error.fields.get("missing") == "docker":
                raise
            tried[address] = str(error.fields.get("reason", error.message))
    places = "; ".join(f"{address}: {reason}" for address, reason in tried.items())
    raise EnvironmentMissingError(
        f"no container engine answers (tried {places})", hint=_HOW_TO_START, tried=tried, missing="engine"
    )


class Engine:
    """A Docker-compatible engine on this machine, by the address of its socket (`unix:///run/podman/podman.sock`).

    To be closed, or used as a context manager. Methods may be called from any thread. What the engine refuses is an
    EnvironmentMissingError in its own words.
    """

    def __init__(self, address: str, home: Path) -> None:
        """EnvironmentMissingError where it does not answer."""
        self.address = address
        self._images = home / "cache" / "images"
        self._client, self._version = _connect(address)
        self._has_swept = False

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; containers stay."""
        self._client.close()

    @cached_property
    def _information(self) -> dict[str, Any]:
        with translating("say what it can do"):
            found: dict[str, Any] = self._client.info()
        return found

    @property
    def is_podman(self) -> bool:
        return any("podman" in str(part.get("Name", "")).lower() for part in self._version.get("Components") or [])

    @property
    def version(self) -> str:
        """`podman 4.3.1`, `docker 20.10.24`"""
        return f"{'podman' if self.is_podman else 'docker'} {self._version.get('Version', '')}".strip()

    @property
    def architecture(self) -> str:
        """In the words of images: amd64, arm64, ppc64le."""
        return container_words(str(self._version.get("Arch", "")))

    @property
    def has_gpu(self) -> bool:
        """Whether it can give a container an NVIDIA GPU."""
        if not Path("/dev/nvidiactl").exists():
            return False
        return cdi_describes_gpu() or "nvidia" in (self._information.get("Runtimes") or {})

    @cached_property
    def _abilities(self) -> Abilities:
        if not self.is_podman:
            return docker_abilities(self._information)
        with translating("say what it can do"):
            address = f"{self._client.base_url}/v{self._version.get('Version')}/libpod/info"
            answer = self._client.get(address, timeout=_CALL_SECONDS)
            answer.raise_for_status()
            return podman_abilities(answer.json()["host"])

    def can_limit(self, limit: Limit) -> bool:
        """Whether it can hold a container to it; that of a user without root's rights often cannot."""
        return limit in self._abilities.limits

    def require(self, *limits: Limit) -> None:
        """UnsatisfiableError where it cannot hold a container to one of them."""
        for limit in limits:
            if not self.can_limit(limit):
                raise UnsatisfiableError(
                    f"the container engine cannot limit {_LIMITS[limit]} of a container ({self.version})",
                    hint=_HOW_TO_LIMIT,
                    limit=limit,
                    engine=self.version,
                )

    def inspect(self, image: str, *, pull: bool = False) -> ImageFacts:
        """What is in an image, found once per content by running every Python in it and kept under the home.

        UnknownNameError: there is no such image here, and with `pull` a DownloadError: the registry gave none.
        UnsatisfiableError: it is for another machine. EnvironmentMissingError: it has no Python >= 3.6 with numpy.
        """
        found = self._find(image, pull)
        theirs, system = container_words(str(found.get("Architecture", ""))), str(found.get("Os") or "linux")
        if theirs != self.architecture or system != "linux":
            raise UnsatisfiableError(
                f"the image {image} is for {system}/{theirs}, and this machine is linux/{self.architecture}",
                hint="name an image for this architecture under `container:`; emulation would measure the emulator",
                image=image,
                image_architecture=theirs,
                machine_architecture=self.architecture,
            )
        digest = _with_algorithm(str(found["Id"]))
        facts = ImageFacts(
            name=image,
            digest=digest,
            repo_digest=next(iter(found.get("RepoDigests") or []), None),
            architecture=theirs,
            os=system,
            size_bytes=int(found.get("Size") or 0),
            labels=(found.get("Config") or {}).get("Labels") or {},
            interpreters=self._interpreters(digest),
        )
        facts.interpreter()
        return facts

    def _find(self, image: str, pull: bool) -> dict[str, Any]:
        try:
            with translating("describe an image"):
                found: dict[str, Any] = self._client.inspect_image(image)
        except EnvironmentMissingError as error:
            if not is_absent(error.__cause__):
                raise
            if not pull:
                raise self._unknown(image) from None
        else:
            return found
        self._pull(image)
        return self._find(image, pull=False)

    def _unknown(self, image: str) -> UnknownNameError:
        with translating("list its images"):
            names = [tag for found in self._client.images() for tag in found.get("RepoTags") or []]
        plain = UnknownNameError("container image", image, names)
        program = "podman" if self.is_podman else "docker"
        how = f"`{program} pull {image}` fetches it from its registry; containers/README.md tells how to build one"
        hint = f"{plain.hint} {how}" if plain.fields["near"] else how
        return UnknownNameError("container image", image, names, hint=hint)

    def _pull(self, image: str) -> None:
        from docker.utils import parse_repository_tag

        repository, tag = parse_repository_tag(image)
        try:
            with translating("pull an image"):
                # read to the end: the image is there when the stream is over
                lines = list(self._client.pull(repository, tag=tag or "latest", stream=True, decode=True))
        except EnvironmentMissingError as error:
            raise DownloadError(f"the image {image} cannot be pulled: {error.fields['reason']}", image=image) from error
        problem = next((str(line["error"]) for line in lines if line.get("error")), None)
        if problem:
            raise DownloadError(f"the image {image} cannot be pulled: {problem}", image=image)

    def _interpreters(self, digest: str) -> tuple[Interpreter, ...]:
        note = self._images / f"{digest.rpartition(':')[2]}.json"
        kept = read_json(note)
        if kept is not None and kept.get("schema") == _SCHEMA:
            with suppress(ValidationError):
                return _INTERPRETERS.validate_python(kept.get("interpreters"))
        found = search_image(self, digest)
        write_json(note, {"schema": _SCHEMA, "interpreters": [one.model_dump(mode="json") for one in found]})
        return found

    def start(
        self,
        image: str,
        command: Sequence[str],
        *,
        mounts: Sequence[Mount] = (),
        variables: Mapping[str, str] | None = None,
        network: bool = False,
        cpus: str | None = None,
        memory_bytes: int | None = None,
        pids: int | None = None,
        gpus: bool = False,
        user: str | None = None,
        workdir: str = "/",
    ) -> Container:
        """Runs `command` (a program inside the image and its arguments) in a new container; the image's own entry
        point plays no part. `image` is best the digest of its facts. Removed by the caller, else by a later `sweep`.

        Its files are read-only but for /tmp, /dev/shm and mounts that say otherwise; it has no rights that its user
        (`UID:GID`, by default this process's) has not. UnsatisfiableError: `gpus` where the engine has none, or a limit
        that it cannot hold.
        """
        allowance = Allowance(mounts, network, cpus, memory_bytes, pids, gpus)
        self.require(*allowance.limits)
        if gpus and not self.has_gpu:
            raise UnsatisfiableError(
                "the container engine cannot give a container a GPU",
                hint="install the NVIDIA driver and container toolkit, or run on the CPU",
                engine=self.version,
            )
        if not self._has_swept:
            self._has_swept = True
            self.sweep()
        options = host_options(allowance, is_podman=self.is_podman, has_selinux=self._abilities.has_selinux)
        # a name of our own: it can be removed even if the answer to its creation never arrives
        name = f"mlmodelscope-{os.getpid()}-{secrets.token_hex(6)}"
        try:
            with translating("start a container", image=image):
                self._client.create_container(
                    image,
                    list(command[1:]),
                    name=name,
                    entrypoint=[command[0]],
                    environment=variables_of(variables or {}),
                    user=user or self._caller(),
                    working_dir=workdir,
                    labels={LABEL: owner_label()},
                    host_config=self._client.create_host_config(**options),
                    healthcheck={"test": ["NONE"]},
                    use_config_proxy=False,
                )
                self._client.start(name)
        except BaseException as error:
            remove_container(self._client, name)
            if network and isinstance(error, EnvironmentMissingError):
                error.hint = _HOW_TO_CONNECT
            raise
        return Container(self._client, name, image, memory_bytes)

    def sweep(self) -> list[str]:
        """Removes the containers of processes of this machine that died before they could do it; gives their names.

        One that the engine does not remove stays, or another process is removing it: a later sweep finds it again.
        """
        with translating("list its containers"):
            found = self._client.containers(all=True, filters={"label": [LABEL]})
        dead = [one["Names"][0].lstrip("/") for one in found if has_died((one.get("Labels") or {}).get(LABEL, ""))]
        return [name for name in dead if self._is_removed(name)]

    def _is_removed(self, name: str) -> bool:
        try:
            remove_container(self._client, name)
        except EnvironmentMissingError:
            return False
        return True

    def _caller(self) -> str:
        # the engine's own user; any other number would be somebody else outside
        return "0:0" if self._abilities.is_rootless else f"{os.getuid()}:{os.getgid()}"


def _connect(address: str) -> tuple[Any, dict[str, Any]]:
    """The SDK's client (the SDK has no types of its own), and what the engine says about its version."""
    try:
        from docker import APIClient
        from docker.errors import DockerException
        from requests.exceptions import RequestException
    except ImportError:
        raise EnvironmentMissingError(
            "containers need the Python package docker",
            hint="pip install 'mlmodelscope[environments]'",
            missing="docker",
        ) from None
    try:
        _knock(address)
        # The client would ask on its own, and keep most of the answer to itself; Podman takes 0.4 s for it. The version
        # that is named here is not used: the question is sent without one.
        with closing(APIClient(base_url=address, version="1.44", timeout=_PING_SECONDS)) as client:
            told = client.version(api_version=False)
        return APIClient(base_url=address, version=told["ApiVersion"], timeout=_CALL_SECONDS), told
    except (DockerException, RequestException, OSError, ValueError, KeyError, TypeError) as error:
        raise EnvironmentMissingError(
            f"no container engine answers at {address}: {_reason(error)}", hint=_HOW_TO_START, reason=_reason(error)
        ) from error


def _knock(address: str) -> None:
    """OSError where nobody listens on the unix socket: the SDK would leave its own end open."""
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
            end.settimeout(_PING_SECONDS)
            end.connect("/" + address.removeprefix("unix://").lstrip("/"))


def _reason(error: BaseException) -> str:
    """The innermost cause in the words of the operating system, where there is one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno).lower()
        cause = cause.__cause__ or cause.__context__
    return explanation(error)


def _with_algorithm(identity: str) -> str:
    return identity if ":" in identity else f"sha256:{identity}"
