"""The remote protocol as values: what is accepted, what is refused, and with which id."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.remote.access import Access, is_loopback, parse_address
from spindle.remote.chat_protocol import Command, Control, Parts, ProtocolError, ToolAnswer, TurnAnswer, parse_request

PIXEL = base64.b64encode(b"\x89PNG....").decode()


def request(input, **fields):
    return parse_request(json.dumps({"request_id": "r", "input": input, **fields}).encode())


@pytest.mark.parametrize(
    "input, expected",
    [
        ({"Text": "hi"}, Parts("hi")),
        ("Interrupt", Control("Interrupt")),
        ({"ClearContext": None}, Control("ClearContext")),
        ({"Instruction": {"command": "/help"}}, Command("help", None)),
        ({"TurnConfirmationResponse": {"confirmed": True, "reason": "ok"}}, TurnAnswer(True, "ok")),
        (
            {"ToolConfirmationResponse": {"name": "bash", "arguments": {}, "approved": False}},
            ToolAnswer("bash", False, None),
        ),
    ],
)
def test_inputs(input, expected):
    assert request(input).input == expected


def test_images_and_files_become_parts():
    image = request({"Image": {"data": PIXEL}}).input
    assert image.images[0].mime_type == "image/png"
    text = base64.b64encode("grüß".encode()).decode()
    file = request({"File": {"filename": "a.txt", "content_type": "text/plain", "data": text}}).input
    assert file.text == '<file name="a.txt">\ngrüß\n</file>\n'
    both = request(
        {"Multi": [{"Text": "look"}, {"Multi": [{"Image": {"data": PIXEL, "mime_type": "image/gif"}}]}]}
    ).input
    assert both.text == "look" and both.images[0].mime_type == "image/gif"


@pytest.mark.parametrize("fields, stream", [({}, False), ({"stream": True}, True), ({"": True}, True), ({"stream": False, "": True}, False), ({"stream": None}, False)])  # fmt: skip
def test_the_stream_switch_has_two_names(fields, stream):
    assert request({"Text": "x"}, **fields).stream is stream


@pytest.mark.parametrize(
    "frame, id",
    [
        (b"{oops", "parse_error"),
        (b"5", "parse_error"),
        (b'{"input":"Interrupt"}', "parse_error"),
        (b'{"request_id":7,"input":"Interrupt"}', "parse_error"),
        (b'{"request_id":"a"}', "a"),
        (b'{"request_id":"a","input":{"Foo":1}}', "a"),
        (b'{"request_id":"a","input":"Text"}', "a"),
        (b'{"request_id":"a","input":{"Text":1}}', "a"),
        (b'{"request_id":"a","input":{"Text":"x","Image":{}}}', "a"),
        (b'{"request_id":"a","input":{"Interrupt":{}}}', "a"),
        (b'{"request_id":"a","input":{"Multi":[]}}', "a"),
        (b'{"request_id":"a","input":{"Multi":["Interrupt"]}}', "a"),
        (b'{"request_id":"a","input":{"Image":{"data":"!"}}}', "a"),
        (b'{"request_id":"a","input":{"Text":"x"},"stream":"yes"}', "a"),
        (b'{"request_id":"a","input":{"Text":"x"},"config":{"max_context_num":0}}', "a"),
        (b'{"request_id":"a","input":{"Text":"x"},"config":{"max_tokens":-1}}', "a"),
        (b'{"request_id":"a","input":{"Text":"x"},"config":[]}', "a"),
        (b'{"request_id":"a","input":' + b'{"Multi":[' * 20 + b'{"Text":"x"}' + b"]}" * 20 + b"}", "a"),
    ],
)
def test_bad_frames_name_their_request(frame, id):
    with pytest.raises(ProtocolError) as caught:
        parse_request(frame)
    assert caught.value.request_id == id and str(caught.value)


@given(st.binary(max_size=200) | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)).map(lambda v: json.dumps(v).encode()))  # fmt: skip
def test_no_frame_raises_anything_else(data):
    try:
        parse_request(data)
    except ProtocolError:
        pass


# -- access -------------------------------------------------------------------------------------------

LOCAL = Access("127.0.0.1", 8080)


@pytest.mark.parametrize(
    "access, headers, status",
    [
        (LOCAL, {"Host": "127.0.0.1:8080"}, None),
        (LOCAL, {"Host": "localhost:8080"}, None),
        (LOCAL, {"Host": "[::1]:8080"}, None),
        (LOCAL, {"Host": "evil.example:8080"}, 403),
        (LOCAL, {"Host": "127.0.0.1:9"}, 403),
        (LOCAL, {}, 403),
        (LOCAL, {"Host": "localhost:8080", "Origin": "http://localhost:8080"}, None),
        (LOCAL, {"Host": "localhost:8080", "Origin": "http://evil.example"}, 403),
        (LOCAL, {"Host": "localhost:8080", "Origin": "null"}, 403),
        (Access("0.0.0.0", 1, "secret-token-1234"), {"Host": "box:1"}, 401),
        (Access("0.0.0.0", 1, "secret-token-1234"), {"Host": "box:1", "Authorization": "Bearer wrong"}, 401),
        (Access("0.0.0.0", 1, "secret-token-1234"), {"Host": "box:1", "Authorization": "Bearer secret-token-1234"}, None),
        (
            Access("0.0.0.0", 1, "secret-token-1234"),
            {"Host": "box:1", "Sec-WebSocket-Protocol": "spindle, spindle.token.c2VjcmV0LXRva2VuLTEyMzQ"},
            None,
        ),
        (Access("127.0.0.1", 1, origins=frozenset({"https://my.site"})), {"Host": "localhost:1", "Origin": "https://my.site"}, None),
    ],
)  # fmt: skip
def test_who_may_connect(access, headers, status):
    refusal = access.check(headers)
    assert (refusal.status if refusal else None) == status


def test_addresses():
    assert parse_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert parse_address(":80") == ("127.0.0.1", 80)
    assert parse_address("[::1]:80") == ("::1", 80)
    assert is_loopback("127.9.9.9") and is_loopback("localhost") and not is_loopback("0.0.0.0")
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:8080"):
        parse_address("nonsense")
