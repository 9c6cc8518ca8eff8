import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.request import EvaluationRequest
from mlmodelscope.core.value import canonical_json
from mlmodelscope.store.redact import Private, redact, redact_text, redact_urls
from mlmodelscope.testing.records import (
    example_dataset,
    example_manifest,
    example_model,
    example_record,
    example_software,
    failed_record,
)

ALICE = Private(homes=("/export/people/alice",), user="alice", host="lab7.example.org")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("/home/bob/models/a.onnx", "~/models/a.onnx"),
        ("no file /Users/bob/a.yml, sorry", "no file ~/a.yml, sorry"),
        ("/root/.cache", "~/.cache"),
        ("in /root.", "in ~."),
        ("file:///home/bob/a", "file://~/a"),
        ("'/home/bob'", "'~'"),
        ("PATH=/bin:/home/bob/bin:/usr/bin", "PATH=/bin:~/bin:/usr/bin"),
        ("/export/people/alice/x and -I/export/people/alice/y", "~/x and -I~/y"),
        ("/rootfs /srv/root/x /root-data /roots", "/rootfs /srv/root/x /root-data /roots"),
        ("/export/people/alice2/x", "/export/people/alice2/x"),
        ("https://host/home/page", "https://host/home/page"),
        ("https://me:pa@ss@host/x", "https://host/x"),
        ("git+https://abc123@host/x.git", "git+https://host/x.git"),
        ("https://host/x?token=abc&size=3", "https://host/x?token=...&size=3"),
        ("https://host/x?a=1&X-Amz-Signature=ab%2Fc#top", "https://host/x?a=1&X-Amz-Signature=...#top"),
        ("https://host/x?api_key=abc, then", "https://host/x?api_key=..., then"),
        ("npm:@scope/name@1.0.0!a", "npm:@scope/name@1.0.0!a"),
        ("password: hunter2", "password: ..."),
        ("HF_TOKEN=abc def", "HF_TOKEN=... def"),
        ("Authorization: Bearer abc.def", "Authorization: ..."),
        ("unexpected token: '}'", "unexpected token: '}'"),
        ("max_tokens=5 tokenizer=x", "max_tokens=5 tokenizer=x"),
        ("pushed with ghp_" + "a" * 36, "pushed with ..."),
        ("alice@lab7.example.org: lab7 is down", "(user)@(host): (host) is down"),
        ("malice and lab75", "malice and lab75"),
    ],
)
def test_a_text_loses_what_is_private_and_nothing_else(text, expected):
    assert redact_text(text, ALICE) == expected


def test_names_that_every_machine_has_are_left_alone():
    text = "root cause: the host ubuntu refused the user root"
    assert redact_text(text, Private(user="root", host="ubuntu")) == text


@pytest.mark.parametrize("home", ["/", "", "/root"])
def test_a_home_that_is_no_folder_of_its_own_hides_nothing_more(home):
    assert redact_text("/usr/lib and /rooted", Private(homes=(home,))) == "/usr/lib and /rooted"


PIECES = st.sampled_from(
    [
        *("/home/bob", "/root", "/export/people/alice", "/", "~", "https://", "a:b@", "@", "host", "?token=", "&key="),
        *("alice", "lab7", "password=", "bearer ", "ghp_" + "a" * 36, "...", ": ", " ", "\n", "'", "x"),
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_redacting_twice_is_redacting_once(text):
    once = redact_text(text, ALICE)
    assert redact_text(once, ALICE) == once


@given(st.text(max_size=200))
def test_a_text_without_urls_keeps_its_manifest_form(text):
    assert redact_urls(text.replace("://", "")) == text.replace("://", "")


def test_a_record_without_secrets_stays_equal():
    for record in (example_record(), failed_record()):
        assert redact(record, ALICE) == record


def record_full_of_secrets():
    home = "/export/people/alice"
    text = 'name: A\nmodel: {graph_path: "https://bob:s3cret@host/a?token=s3cret"}\nsource: |\n  token = "kept"\n'
    manifest = example_manifest(text=text, origin=f"{home}/a.yml", base=f"{home}/")
    failure = failed_record().failure.model_copy(
        update={
            "message": f"alice cannot read {home}/x",
            "log_tail": "HUB_TOKEN=s3cret\nfetching https://alice:s3cret@host/x\n",
            "fields": {"api_key": "s3cret", "paths": [f"{home}/y"], f"{home}/z": 1},
        }
    )
    return failed_record(
        model=example_model(manifest=manifest),
        dataset=example_dataset(manifest=manifest),
        software=example_software(variables={"USER": "alice", "LD_PRELOAD": f"{home}/lib/jemalloc.so", "SHELL": "sh"}),
        request=EvaluationRequest(models=(f"{home}/a.yml",), inputs=("https://h/a?sig=s3cret",)),
        failure=failure,
        warnings=(f"{home} is slow",),
    )


def test_nothing_private_is_left_in_a_record():
    record = record_full_of_secrets()
    stored = redact(record, ALICE)
    whole = canonical_json(stored)
    assert "s3cret" not in whole
    assert "alice" not in whole
    assert stored.software.variables == {"LD_PRELOAD": "~/lib/jemalloc.so"}
    assert stored.failure.fields == {"api_key": "...", "paths": ["~/y"], "~/z": 1}
    assert redact(stored, ALICE) == stored


def test_a_manifest_loses_only_credentials_and_says_so():
    record = record_full_of_secrets()
    stored = redact(record, ALICE)
    expected = 'name: A\nmodel: {graph_path: "https://host/a?token=..."}\nsource: |\n  token = "kept"\n'
    assert stored.model.manifest.text == expected
    assert stored.model.manifest.digest == record.model.manifest.digest
    assert (stored.model.manifest.origin, stored.model.manifest.base) == ("~/a.yml", "~/")
    assert [w for w in stored.warnings if "credentials were removed" in w] == [
        "credentials were removed from the model's manifest; its digest is of the original",
        "credentials were removed from the dataset's manifest; its digest is of the original",
    ]


def test_paths_in_a_manifest_are_kept_because_they_are_what_it_means():
    text = "name: A\nmodel: {graph_path: /home/bob/a.onnx}\n"
    stored = redact(example_record(model=example_model(manifest=example_manifest(text=text))), ALICE)
    assert stored.model.manifest.text == text
    assert stored.warnings == ()
