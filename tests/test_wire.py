"""What a worker sends is decoded strictly, and never more than is allowed."""

import json
import socket
import struct

import msgspec
import pytest
import torch

from harness.protocol.channel import MAX_MESSAGE_BYTES, BadMessage, Channel, ChannelClosed, ChannelTimeout
from harness.protocol.values import decode_value, encode_value
from harness.protocol.wire import Done, Failed, Release


@pytest.fixture
def ends():
    left, right = socket.socketpair()
    yield Channel(left, judge=True), right
    left.close()
    right.close()


def frame(body):
    return struct.pack("!I", len(body)) + body


def test_a_reply_arrives_as_its_type(ends):
    judge, raw = ends
    Channel(raw, judge=False).send(Failed(reason="raised", message="no"))
    assert judge.receive(1) == Failed(reason="raised", message="no")


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"not json", b'{"type":"accepted"}', b'{"type":"ran","outputs":7,"issue_us":1}', b"\x80\x04."],
)
def test_anything_else_is_a_bad_message(ends, body):
    judge, raw = ends
    raw.sendall(frame(body))
    with pytest.raises(BadMessage):
        judge.receive(1)


@pytest.mark.parametrize("number", [-1, 2**63, 10**400])
def test_what_is_counted_is_a_number_that_a_machine_can_count_to(ends, number):
    judge, raw = ends
    fields = {"registers": 1, "shared_bytes": number, "spill_store_bytes": 1, "spill_load_bytes": 1}
    raw.sendall(frame(json.dumps({"type": "loaded", "kernels": [{"kernel": "k", **fields}]}).encode()))
    with pytest.raises(BadMessage):
        judge.receive(1)


@pytest.mark.parametrize("word", ["data_race\n", "data race", ""])
def test_a_kind_is_one_word(ends, word):
    judge, raw = ends
    finding = {"kind": word, "message": "it says"}
    raw.sendall(frame(json.dumps({"type": "ran", "outputs": [], "findings": [finding]}).encode()))
    with pytest.raises(BadMessage):
        judge.receive(1)


def test_a_request_is_not_a_reply(ends):
    judge, raw = ends
    Channel(raw, judge=False).send(Release())
    with pytest.raises(BadMessage):
        judge.receive(1)


def test_a_message_that_announces_too_much_is_not_read(ends):
    judge, raw = ends
    assert MAX_MESSAGE_BYTES <= 1 << 20
    raw.sendall(struct.pack("!I", MAX_MESSAGE_BYTES + 1))
    with pytest.raises(BadMessage, match="at most"):
        judge.receive(1)


def test_half_a_message_times_out_and_a_closed_socket_says_so(ends):
    judge, raw = ends
    raw.sendall(frame(b'{"type":"done"}')[:7])
    with pytest.raises(ChannelTimeout):
        judge.receive(0.1)
    raw.close()
    with pytest.raises(ChannelClosed):
        judge.receive(1)


def test_one_message_after_the_other(ends):
    judge, raw = ends
    raw.sendall(frame(b'{"type":"done"}') * 2)
    assert judge.receive(1) == judge.receive(1) == Done()


@pytest.mark.parametrize("value", [None, 3, 1e-5, "x", (64, (256,)), [1, (2, 3)], {"eps": 0.1, "dims": (1, 2)}, ()])
def test_constructor_arguments_keep_their_types(value):
    assert decode_value(encode_value(value)) == value


def test_what_cannot_be_carried_is_refused():
    with pytest.raises(TypeError, match="set"):
        encode_value({1, 2})


@pytest.mark.parametrize(
    "value", [320, [12, 32], (12, 32), torch.Size([12, 32]), torch.bfloat16, {"shape": (torch.Size([3]), [])}]
)
def test_a_constructor_is_given_values_of_the_types_that_a_case_has(value):
    def types(of):
        inner = of.values() if isinstance(of, dict) else of if isinstance(of, list | tuple) else ()
        return type(of), [types(v) for v in inner]

    arrived = decode_value(msgspec.json.decode(msgspec.json.encode(encode_value(value))))
    assert arrived == value
    assert types(arrived) == types(value)
