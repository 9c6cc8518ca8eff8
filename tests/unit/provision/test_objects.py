"""Listings of trees by digest."""

import hashlib

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import ArchiveError, MLModelScopeError
from mlmodelscope.provision.digests import combine, hash_file
from mlmodelscope.provision.objects import format_listing, object_path, parse_listing, parse_object_path

DIGEST = hashlib.sha256(b"x").hexdigest()
PARTS = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/\\"), min_size=1, max_size=8)
FLAT = st.dictionaries(
    PARTS.filter(lambda part: part not in (".", "..") and part[1:2] != ":"), st.just(DIGEST), min_size=1
)


@given(FLAT)
def test_a_listing_comes_back(files):
    assert parse_listing(format_listing(files), "tree") == files


def test_a_listing_hashes_to_the_tree_digest(tmp_path):
    names = ["b.txt", "a/b.txt", "a/\xe4.txt"]
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    digests = {name: hash_file(tmp_path / name) for name in names}
    listing = format_listing({name: each.sha256 for name, each in digests.items()})
    assert hashlib.sha256(listing).hexdigest() == combine(digests).sha256


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "a//b", "./a", "a\\b", "C:/x", "a\tb", ""])
def test_a_listing_that_leads_out(name):
    with pytest.raises(ArchiveError):
        parse_listing(f"{DIGEST}  {name}\n".encode(), "tree")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        f"{DIGEST}  a".encode(),
        f"{DIGEST}  b\n{DIGEST}  a\n".encode(),
        f"{DIGEST}  a\n{DIGEST}  a\n".encode(),
        f"{DIGEST}  a\n{DIGEST}  a/b\n".encode(),
        f"{DIGEST} a\n".encode(),
    ],
)
def test_what_is_no_listing(content):
    with pytest.raises(ArchiveError):
        parse_listing(content, "tree")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_listing_or_refused(content):
    try:
        files = parse_listing(content, "tree")
    except MLModelScopeError:
        return
    assert format_listing(files) == content


def test_paths_of_objects():
    assert parse_object_path(object_path("trees", DIGEST)) == ("trees", DIGEST)
    for path in (
        "sha256/00/" + DIGEST,
        f"other/{DIGEST[:2]}/{DIGEST}",
        f"sha256/{DIGEST}",
        f"../sha256/{DIGEST[:2]}/{DIGEST}",
    ):
        assert parse_object_path(path) is None
