from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from mlmodelscope.core.asset import Asset, Checksum, Location, parse_location, public_location
from mlmodelscope.core.settings import home
from mlmodelscope.provision.locations import index_key, is_in_place, local_path
from mlmodelscope.provision.pip_settings import PipSettings, parse_pip_config


@pytest.mark.parametrize(
    "text, kind, target, version, member, name",
    [
        ("https://h.example/a/model.onnx", "url", "https://h.example/a/model.onnx", None, None, "model.onnx"),
        ("http://h.example/a%20b.pb?v=1", "url", "http://h.example/a%20b.pb?v=1", None, None, "a b.pb"),
        ("https://h.example/y.tar.gz!dir/m.pb", "url", "https://h.example/y.tar.gz", None, "dir/m.pb", "m.pb"),
        ("file:///data/a%21b.onnx", "path", "/data/a!b.onnx", None, None, "a!b.onnx"),
        ("models/m.tflite", "path", "models/m.tflite", None, None, "m.tflite"),
        ("../m.zip!m.pb", "path", "../m.zip", None, "m.pb", "m.pb"),
        ("pypi:foolbox==3.3.4!foolbox/data/*.jpg", "pypi", "foolbox", "3.3.4", "foolbox/data/*.jpg", "*.jpg"),
        ("pypi:a.b-c==1!2.0rc1+x!m/", "pypi", "a.b-c", "1!2.0rc1+x", "m/", "m"),
        ("npm:is-odd@3.0.1!package/index.js", "npm", "is-odd", "3.0.1", "package/index.js", "index.js"),
        ("npm:@a/b@1.0.0-rc.1!/", "npm", "@a/b", "1.0.0-rc.1", "/", "asset"),
    ],
)
def test_each_form_is_parsed_and_written_back(text, kind, target, version, member, name):
    location = parse_location(text)
    assert (location.kind, location.target, location.version, location.member) == (kind, target, version, member)
    assert location.name == name
    if not text.startswith("file:"):
        assert str(location) == text


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", "must be a URL"),
        (" a.onnx", "surrounding blanks"),
        ("a\nb", "surrounding blanks"),
        ("s3://bucket/x", "unknown kind of location 's3'"),
        ("hub:x/y", "unknown kind of location 'hub'"),
        ("pypi:foolbox!x", "expected pypi:NAME==VERSION!member"),
        ("pypi:foolbox>=3!x", "one exact version"),
        ("pypi:--evil==1!x", "expected pypi:"),
        ("pypi:foolbox==3.3.4", "'!/' means every file"),
        ("npm:is-odd@latest!x", "one exact version"),
        ("npm:is-odd@^3.0.0!x", "one exact version"),
        ("npm:--registry=x@1.0.0!x", "expected npm:"),
        ("npm:../up@1.0.0!x", "expected npm:"),
        ("https:///x", "names no host"),
        ("https://h.example/folder/", "cannot be listed"),
        ("file://host/x", "file:///absolute/path"),
        ("a.zip!", "a member must follow"),
        ("a.zip!../x", "relative path inside"),
        ("a.zip!/etc/passwd", "relative path inside"),
        ("folder/!x", "must follow the name of an archive"),
    ],
)
def test_a_malformed_location_says_what_was_expected(text, expected):
    with pytest.raises(ValueError) as caught:
        parse_location(text)
    assert expected in str(caught.value)


def test_an_asset_refuses_a_malformed_location_and_shows_no_password():
    with pytest.raises(ValidationError) as caught:
        Asset(locations=("https://me:hunter2@h.example/folder/",))
    text = caught.value.errors()[0]["msg"]
    assert "hunter2" not in text
    assert "h.example" in text


def test_an_asset_needs_a_location():
    with pytest.raises(ValidationError):
        Asset(locations=())


def test_checksums_are_lower_case_hex():
    assert Checksum(sha256=" " + "AB" * 32).sha256 == "ab" * 32
    with pytest.raises(ValidationError):
        Checksum(sha256="ab")
    with pytest.raises(ValidationError):
        Checksum(md5="g" * 32)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("https://me:pw@h.example/x.bin#part", "https://h.example/x.bin"),
        ("https://h.example/x?download=1", "https://h.example/x?download=1"),
        ("https://h.example/x?v=1&X-Amz-Signature=abc", "https://h.example/x?v=1&X-Amz-Signature=..."),
        ("https://h.example/x?access_token=abc!m/a.pb", "https://h.example/x?access_token=...!m/a.pb"),
        ("models/m@1.onnx", "models/m@1.onnx"),
        ("npm:@a/b@1.0.0!x", "npm:@a/b@1.0.0!x"),
    ],
)
def test_what_is_shown_has_no_credentials(text, shown):
    assert public_location(text) == shown


@given(
    user=st.text(st.characters(codec="ascii", categories=["Ll", "Nd"]), min_size=6),
    secret=st.text(st.characters(codec="ascii", categories=["Lu", "Nd"]), min_size=12),
)
def test_no_user_or_secret_survives(user, secret):
    shown = public_location(f"https://{user}q_:{secret}@h.example/x?token={secret}")
    assert shown == "https://h.example/x?token=..."


def test_paths_start_at_the_manifests_folder(tmp_path):
    assert local_path(parse_location("../a/m.onnx"), tmp_path / "zoo") == tmp_path / "a" / "m.onnx"
    assert local_path(parse_location("/a/m.onnx"), tmp_path) == Path("/a/m.onnx")
    assert is_in_place(parse_location("m.onnx"))
    assert not is_in_place(parse_location("m.zip!m.onnx"))


def test_an_archive_on_this_machine_is_remembered_by_its_content():
    location = Location(kind="path", target="a.zip", member="m")
    assert index_key(location, "11", "") != index_key(location, "22", "")
    assert index_key(location, "11", "") != index_key(location, "11", "reader")


def test_home_comes_from_the_variable_or_the_users_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home({"MLMODELSCOPE_HOME": "/data/mls"}) == Path("/data/mls")
    assert home({"MLMODELSCOPE_HOME": "  "}) == tmp_path / ".mlmodelscope"
    assert home({}) == tmp_path / ".mlmodelscope"
    assert not (tmp_path / ".mlmodelscope").exists()


def test_pips_sections_override_each_other_in_its_order():
    text = "\n".join(
        [
            ":env:.find-links='/wheels'",
            "download.index-url='https://two.example/simple'",
            "global.cert='/ca.crt'",
            "global.extra-index-url='file:///a\\nhttps://b.example/s'",
            "global.index-url='https://one.example/simple'",
            "global.timeout='7'",
            "install.index-url='https://three.example/simple'",
            "no value",
        ]
    )
    assert parse_pip_config(text, {"proxy": "http://p.example"}) == PipSettings(
        indexes=("https://two.example/simple", "file:///a", "https://b.example/s"),
        find_links=("/wheels",),
        cert="/ca.crt",
        proxy="http://p.example",
        timeout_seconds=7.0,
    )


def test_variables_win_and_no_index_leaves_only_the_links():
    assert parse_pip_config("global.index-url='x'", {"index-url": "y"}).indexes == ("y",)
    assert parse_pip_config("", {"no-index": "1", "find-links": "/w"}) == PipSettings(indexes=(), find_links=("/w",))
    assert parse_pip_config("", {"no-index": "false", "timeout": "soon"}) == PipSettings()
