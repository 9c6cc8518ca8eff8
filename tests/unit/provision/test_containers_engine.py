"""The engine against a client that answers from memory; tests/integration/test_containers.py has a real one."""

import json
import sys

import pytest
import requests
from docker.errors import APIError, ImageNotFound, NotFound

from mlmodelscope.core.errors import (
    DownloadError,
    EnvironmentMissingError,
    TimeLimitError,
    UnknownNameError,
    UnsatisfiableError,
)
from mlmodelscope.core.settings import container_engines
from mlmodelscope.provision.containers import container as container_module, engine as engine_module, find_engine
from mlmodelscope.provision.containers.engine import Engine
from mlmodelscope.provision.containers.owner import LABEL, owner_label
from mlmodelscope.provision.containers.probe import MARK

PROBE = {"path": "/usr/bin/python3", "version": "3.9.2", "numpy": "1.23.5", "packages": {"caffe": "1.0"}}


class Response:
    def __init__(self, status_code):
        self.status_code = status_code
        self.reason = "as told"
        self.url = "http+docker://localhost"


class Client:
    """An engine in memory: `calls` is what it was asked, `output` what every container prints."""

    def __init__(self):
        self.calls = []
        self.images_here = {"here:1": {"Id": "sha256:ab", "Architecture": "amd64", "Os": "linux", "Size": 5}}
        self.images_there = {}
        self.output = f"{MARK}{json.dumps(PROBE)}\n"
        self.containers_here = []
        self.start_error = None
        self.pull_lines = []
        self.host = {"cgroupControllers": ["cpuset", "memory", "pids"], "security": {}}
        self.base_url = "http+docker://localhost"
        self.runs = 0

    def version(self):
        return {"Version": "4.3.1", "Arch": "amd64", "Components": [{"Name": "Podman Engine"}]}

    def info(self):
        return {"Runtimes": {}}

    def get(self, address, timeout):
        assert address == "http+docker://localhost/v4.3.1/libpod/info"
        answer = requests.Response()
        answer.status_code = 200
        answer._content = json.dumps({"host": self.host}).encode()
        return answer

    def images(self):
        return [{"RepoTags": [name]} for name in self.images_here] + [{"RepoTags": None}]

    def inspect_image(self, name):
        if name not in self.images_here:
            raise ImageNotFound("no such image", Response(404))
        return self.images_here[name]

    def pull(self, repository, tag, stream, decode):
        self.calls.append(("pull", repository, tag))
        self.images_here |= self.images_there
        return iter(self.pull_lines)

    def create_host_config(self, **options):
        return options

    def create_container(self, image, command, **options):
        self.runs += 1
        self.created = {"image": image, "command": command, **options}

    def start(self, name):
        if self.start_error:
            raise self.start_error

    def containers(self, **options):
        assert options == {"all": True, "filters": {"label": [LABEL]}}
        return self.containers_here

    def inspect_container(self, name):
        return {"State": {"Running": False, "ExitCode": 0}}

    def wait(self, name, timeout=None):
        return {"StatusCode": 0}

    def logs(self, name, **_):
        return self.output.encode()

    def remove_container(self, name, v, force):
        self.calls.append(("remove", name))
        if name == "gone":
            raise NotFound("no such container", Response(404))
        if name == "stuck":
            raise APIError("x", Response(409), explanation="removal of container stuck is already in progress")

    def close(self):
        self.calls.append(("close",))


@pytest.fixture
def client(monkeypatch):
    client = Client()
    monkeypatch.setattr(engine_module, "_connect", lambda address: (client, client.version()))
    return client


@pytest.fixture
def engine(client, tmp_path):
    return Engine("unix:///here.sock", tmp_path)


@pytest.fixture
def no_engine_named(monkeypatch):
    for name in ("DOCKER_HOST", "CONTAINER_HOST", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_the_usual_places_in_order(no_engine_named, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/5")
    assert container_engines() == [
        "unix:///var/run/docker.sock",
        "unix:///run/podman/podman.sock",
        "unix:///run/user/5/docker.sock",
        "unix:///run/user/5/podman/podman.sock",
    ]


def test_a_named_engine_is_the_only_one(no_engine_named, monkeypatch):
    monkeypatch.setenv("CONTAINER_HOST", "unix:///b.sock")
    assert container_engines() == ["unix:///b.sock"]
    monkeypatch.setenv("DOCKER_HOST", "unix:///a.sock")
    assert container_engines() == ["unix:///a.sock", "unix:///b.sock"]


def test_no_engine_says_what_was_tried(no_engine_named, monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("CONTAINER_HOST", "nonsense://here")
    with pytest.raises(EnvironmentMissingError, match="no container engine answers") as caught:
        find_engine(tmp_path)
    assert list(caught.value.fields["tried"]) == [f"unix://{tmp_path}/none.sock", "nonsense://here"]
    assert caught.value.fields["tried"][f"unix://{tmp_path}/none.sock"] == "no such file or directory"
    assert "podman system service" in caught.value.hint


def test_without_the_sdk_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "docker", None)
    monkeypatch.setenv("DOCKER_HOST", "unix:///a.sock")
    with pytest.raises(EnvironmentMissingError, match="package docker") as caught:
        find_engine(tmp_path)
    assert "mlmodelscope[environments]" in caught.value.hint


def test_an_engine_says_what_it_is(engine, client):
    assert (engine.version, engine.architecture, engine.is_podman) == ("podman 4.3.1", "amd64", True)
    with engine:
        pass
    assert client.calls == [("close",)]


def test_facts_of_an_image(engine, client):
    client.images_here["here:1"] |= {"RepoDigests": ["r@sha256:cd"], "Config": {"Labels": {"a": "b"}}}
    facts = engine.inspect("here:1")
    assert (facts.name, facts.digest, facts.repo_digest) == ("here:1", "sha256:ab", "r@sha256:cd")
    assert (facts.architecture, facts.os, facts.size_bytes, facts.labels) == ("amd64", "linux", 5, {"a": "b"})
    assert (facts.python, facts.numpy, facts.packages) == ("/usr/bin/python3", "1.23.5", {"caffe": "1.0"})


def test_an_image_is_run_once_per_content(engine, client):
    first = engine.inspect("here:1")
    client.images_here["other:2"] = client.images_here["here:1"]
    assert engine.inspect("other:2") == first.model_copy(update={"name": "other:2"})
    assert client.runs == 1
    client.images_here["here:1"] = {**client.images_here["here:1"], "Id": "sha256:cd"}
    engine.inspect("here:1")
    assert client.runs == 2


def test_a_note_that_cannot_be_read_is_made_again(engine, client, tmp_path):
    engine.inspect("here:1")
    for text in ("{", '{"schema": 1}', '{"schema": 1, "interpreters": [{"path": 3}]}', '{"schema": 0}'):
        (tmp_path / "cache/images/ab.json").write_text(text)
        assert engine.inspect("here:1").python == "/usr/bin/python3"


def test_an_image_for_another_machine_is_never_started(engine, client):
    client.images_here["here:1"]["Architecture"] = "arm64"
    with pytest.raises(UnsatisfiableError, match="linux/arm64, and this machine is linux/amd64") as caught:
        engine.inspect("here:1")
    assert caught.value.fields["image_architecture"] == "arm64"
    assert client.runs == 0


def test_an_unknown_image_is_not_pulled_by_itself(engine, client):
    with pytest.raises(UnknownNameError, match="no container image named 'hero:1'") as caught:
        engine.inspect("hero:1")
    assert caught.value.fields["near"] == ["here:1"]
    assert "podman pull hero:1" in caught.value.hint
    assert client.calls == []


def test_an_image_is_pulled_where_that_is_asked_for(engine, client):
    client.images_there = {"reg:5000/there": client.images_here["here:1"]}
    assert engine.inspect("reg:5000/there", pull=True).name == "reg:5000/there"
    assert ("pull", "reg:5000/there", "latest") in client.calls


def test_a_registry_that_gives_nothing(engine, client):
    client.pull_lines = [{"status": "trying"}, {"error": "unauthorized"}]
    with pytest.raises(DownloadError, match="unauthorized"):
        engine.inspect("there:2", pull=True)


def test_a_container_is_made_as_asked(engine, client):
    engine.start("here:1", ["python3", "-c", "1"], variables={"B": "2", "A": "1"}, user="7:8", workdir="/w")
    made = client.created
    assert (made["entrypoint"], made["command"]) == (["python3"], ["-c", "1"])
    assert (made["environment"], made["user"], made["working_dir"]) == (["A=1", "B=2"], "7:8", "/w")
    assert made["labels"] == {LABEL: owner_label()}
    assert made["host_config"]["network_mode"] == "none"


def test_an_engine_without_roots_rights_maps_its_user_to_root(engine, client):
    client.host["security"]["rootless"] = True
    engine.start("here:1", ["true"])
    assert client.created["user"] == "0:0"


@pytest.mark.parametrize("error", [APIError("refused", Response(500)), KeyboardInterrupt()])
def test_what_cannot_be_started_is_removed(engine, client, error):
    client.start_error = error
    with pytest.raises((EnvironmentMissingError, KeyboardInterrupt)):
        engine.start("here:1", ["true"])
    assert ("remove", client.created["name"]) in client.calls


def test_a_gpu_must_be_there(engine, client):
    with pytest.raises(UnsatisfiableError, match="GPU"):
        engine.start("here:1", ["true"], gpus=True)
    assert client.runs == 0


@pytest.mark.parametrize(
    ("limit", "asked"), [("cpuset", {"cpus": "0"}), ("memory", {"memory_bytes": 5}), ("pids", {"pids": 5})]
)
def test_a_limit_that_the_engine_cannot_hold_is_refused(engine, client, limit, asked):
    client.host["cgroupControllers"].remove(limit)
    assert not engine.can_limit(limit)
    with pytest.raises(UnsatisfiableError, match="cannot limit") as caught:
        engine.start("here:1", ["true"], **asked)
    assert caught.value.fields["limit"] == limit
    assert "Delegate=" in caught.value.hint
    assert client.runs == 0


def test_an_image_is_searched_within_limits(engine, client):
    engine.inspect("here:1")
    options = client.created["host_config"]
    assert (options["mem_limit"], options["memswap_limit"], options["pids_limit"]) == (1024**3, 1024**3, 256)


@pytest.mark.parametrize(("limit", "option"), [("memory", "mem_limit"), ("pids", "pids_limit")])
def test_an_image_is_searched_where_a_limit_cannot_be_held(engine, client, limit, option):
    client.host["cgroupControllers"].remove(limit)
    assert engine.inspect("here:1").python == "/usr/bin/python3"
    assert option not in client.created["host_config"]


def test_leftovers_of_the_dead_are_removed_and_no_others(engine, client):
    place, _, _ = owner_label().rpartition("/")[0].rpartition("/")
    client.containers_here = [
        {"Names": ["/mine"], "Labels": {LABEL: owner_label()}},
        {"Names": ["/dead"], "Labels": {LABEL: f"{place}/999999999/1"}},
        {"Names": ["gone"], "Labels": {LABEL: f"{place}/999999998/1"}},
        {"Names": ["/elsewhere"], "Labels": {LABEL: "other-boot/pid:[1]/1/1"}},
        {"Names": ["/strange"], "Labels": None},
    ]
    assert engine.sweep() == ["dead", "gone"]
    assert client.calls == [("remove", "dead"), ("remove", "gone")]


def test_the_first_start_sweeps(engine, client):
    client.containers_here = [{"Names": ["/dead"], "Labels": {LABEL: owner_label().rsplit("/", 2)[0] + "/999999999/1"}}]
    engine.start("here:1", ["true"])
    engine.start("here:1", ["true"])
    assert client.calls.count(("remove", "dead")) == 1


def test_one_that_cannot_be_removed_is_no_reason_not_to_start(engine, client, monkeypatch):
    monkeypatch.setattr(container_module.time, "sleep", lambda seconds: None)
    dead = owner_label().rsplit("/", 2)[0] + "/999999999/1"
    client.containers_here = [{"Names": [name], "Labels": {LABEL: dead}} for name in ("/stuck", "/dead")]
    with engine.start("here:1", ["true"]):
        assert ("remove", "dead") in client.calls
    assert engine.sweep() == ["dead"]


def test_a_removal_that_was_asked_for_and_fails_is_told(client, monkeypatch):
    monkeypatch.setattr(container_module.time, "sleep", lambda seconds: None)
    with pytest.raises(EnvironmentMissingError, match="already in progress"):
        container_module.Container(client, "stuck", "here:1", None).remove()


def test_an_image_without_a_shell_is_asked_directly(engine, client, monkeypatch):
    starts = []

    def start(name):
        starts.append(client.created["entrypoint"][0])
        if starts[-1] == "/bin/sh":
            raise APIError("x", Response(500), explanation='exec: "/bin/sh": stat /bin/sh: no such file or directory')

    monkeypatch.setattr(client, "start", start)
    assert engine.inspect("here:1").python == "/usr/bin/python3"
    assert starts == ["/bin/sh", "python3"]


def test_an_engine_that_refuses_is_not_an_image_without_python(engine, client, tmp_path):
    client.start_error = APIError("x", Response(500), explanation="cgroups: permission denied")
    with pytest.raises(EnvironmentMissingError, match="permission denied"):
        engine.inspect("here:1")
    assert not (tmp_path / "cache/images/ab.json").exists()


def test_an_image_whose_python_hangs_leaves_no_note(engine, client, monkeypatch, tmp_path):
    from requests.exceptions import ReadTimeout

    def wait(name, timeout=None):
        raise ReadTimeout("read timed out")

    monkeypatch.setattr(client, "wait", wait)
    with pytest.raises(TimeLimitError, match="did not end within"):
        engine.inspect("here:1")
    assert ("remove", client.created["name"]) in client.calls
    assert not (tmp_path / "cache/images/ab.json").exists()
