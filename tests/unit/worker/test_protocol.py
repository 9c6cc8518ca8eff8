"""The two ends of the worker's socket: what arrives whole, and what is refused."""

import json
import socket
import struct
import threading

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.worker import protocol
from mlmodelscope.worker.protocol import Channel, ProtocolViolation

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, lambda inner: st.lists(inner, max_size=3))


@pytest.fixture
def ends():
    left, right = socket.socketpair()
    with left, right:
        yield left, right


@given(st.lists(st.dictionaries(TEXTS, VALUES), max_size=4))
def test_messages_arrive_as_they_were_sent_and_in_order(messages):
    left, right = socket.socketpair()
    with left, right:
        sender, receiver = Channel(left), Channel(right)
        sent = [{**message, "type": "any"} for message in messages]
        for message in sent:
            sender.send(message)
        sender.close()
        assert [receiver.receive() for _ in sent] == sent
        assert receiver.receive() is None


def test_a_long_message_is_read_to_its_end(ends):
    left, right = ends
    message = {"type": "any", "text": "x" * 3_000_000}
    sender = threading.Thread(target=Channel(left).send, args=(message,))
    sender.start()
    assert Channel(right).receive() == message
    sender.join()


@pytest.mark.parametrize("length", [0, 1, 3, 4, 10, 22])
def test_an_end_in_the_middle_of_a_message_is_an_end(ends, length):
    left, right = ends
    body = json.dumps({"type": "any", "n": 1}).encode()
    left.sendall((struct.pack(">I", len(body)) + body)[:length])
    left.close()
    assert Channel(right).receive() is None


UNWRITABLE = [b'{"type": NaN}', b'{"type": 1e999}', b'{"type": "\\ud800"}', b'{"type":' + b"[" * 100_000]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[1]", b"3", b"null", b'{"kind": "no type"}', *UNWRITABLE])
def test_what_is_no_message_is_a_violation(ends, body):
    left, right = ends
    left.sendall(struct.pack(">I", len(body)) + body)
    with pytest.raises(ProtocolViolation):
        Channel(right).receive()


def test_an_oversize_message_is_refused_before_it_is_read(ends):
    left, right = ends
    left.sendall(struct.pack(">I", protocol.MAX_MESSAGE_BYTES + 1))
    with pytest.raises(ProtocolViolation, match=str(protocol.MAX_MESSAGE_BYTES + 1)):
        Channel(right).receive()


def test_an_oversize_message_is_not_sent(ends, monkeypatch):
    monkeypatch.setattr(protocol, "MAX_MESSAGE_BYTES", 100)
    left, right = ends
    with pytest.raises(ProtocolViolation, match="over the limit"):
        Channel(left).send({"type": "any", "text": "x" * 100})
    left.close()
    assert Channel(right).receive() is None


@pytest.mark.parametrize("words", [b"\0\0", b"\0\0\0\x09", b"\0\0\0\x09{"])
def test_a_side_that_stops_in_a_message_is_not_waited_for(ends, words):
    left, right = ends
    left.sendall(words)
    with pytest.raises(ProtocolViolation, match="in the middle"):
        Channel(right, stall_seconds=0.01).receive()


def test_a_side_that_takes_nothing_is_not_waited_for(ends):
    left, _ = ends
    with pytest.raises(ProtocolViolation, match="does not take"):
        Channel(left, stall_seconds=0.01).send({"type": "any", "text": "x" * 3_000_000})


def test_half_a_character_is_replaced_on_the_way(ends):
    left, right = ends
    Channel(left).send({"type": "any", "text": "a\ud800b"})
    assert Channel(right).receive() == {"type": "any", "text": "a?b"}
