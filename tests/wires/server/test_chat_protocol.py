"""The remote protocol as values: what is accepted, what is refused, and with which id."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.shapes.messages import Text
from spindle.wires.agent_cli.protocol import (
    Control,
    Instruction,
    Parts,
    ProtocolError,
    ToolAnswer,
    TurnAnswer,
    parse_request,
)
from spindle.wires.network.access import Access, is_loopback, parse_address
from tests.support.images import PIXEL

GIF = base64.b64encode(b"GIF89a....").decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0").decode()


def request(input, **fields):
    return parse_request(json.dumps({"request_id": "r", "input": input, **fields}).encode())


@pytest.mark.parametrize(
    "input, expected",
    [
        ({"Text": "hi"}, Parts([Text("hi")])),
        ("Interrupt", Control("Interrupt")),
        ({"ClearContext": None}, Control("ClearContext")),
        ({"Instruction": {"command": "/help"}}, Instruction("help", None)),
        ({"TurnConfirmationResponse": {"confirmed": True, "reason": "ok"}}, TurnAnswer(True, "ok")),
        (
            {"ToolConfirmationResponse": {"name": "bash", "arguments": {}, "approved": False}},
            ToolAnswer("bash", {}, False, None),
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
    named = request({"File": {"filename": '"><x>', "content_type": "text/plain", "data": text}}).input
    assert named.text.startswith('<file name="&quot;&gt;&lt;x&gt;">')
    both = request({"Multi": [{"Text": "look"}, {"Multi": [{"Image": {"data": GIF, "mime_type": "image/png"}}]}]}).input
    assert both.text == "look" and both.images[0].mime_type == "image/gif"


def encoded(data):
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("content_type", ["text/plain", "application/pdf", "image/png", "application/octet-stream", ""])
def test_a_file_is_what_it_contains(content_type):
    """Whatever it is called: types and names are often wrong."""

    def file(data, name="notes.pdf"):
        return request({"File": {"filename": name, "content_type": content_type, "data": encoded(data)}}).input

    assert file("grüß".encode()).text == '<file name="notes.pdf">\ngrüß\n</file>\n'
    assert file(b"<svg/>", "a.svg").images == []
    for data, kind in (
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF....WEBP", "image/webp"),
    ):
        assert [image.mime_type for image in file(data, "a.txt").images] == [kind]
    for binary in (b"%PDF-1.7 all of it ASCII", b"PK\x03\x04\0\0", b"\xff\xfea\0", "ü".encode("latin-1")):
        with pytest.raises(ProtocolError, match=r"a\.txt: only UTF-8 text and PNG, JPEG, GIF and WebP images"):
            file(binary, "a.txt")


def test_images_between_texts_keep_their_place():
    def image(data):
        return {"Image": {"data": data}}

    parts = request({"Multi": [image(PIXEL), {"Text": "before"}, image(GIF), {"Text": "after"}, image(JPEG)]}).input
    kinds = ["image/png", "before", "image/gif", "after", "image/jpeg"]
    assert [getattr(block, "text", None) or block.mime_type for block in parts.content] == kinds
    assert parts.text == "before\nafter" and len(parts.images) == 3
    assert request({"Multi": [{"Text": "a"}, {"Multi": [{"Text": "b"}]}]}).input == Parts([Text("a\nb")])


def test_multi_may_be_nested_a_little():
    def nested(depth):
        return {"Text": "x"} if depth == 0 else {"Multi": [nested(depth - 1)]}

    assert request(nested(8)).input == Parts([Text("x")])
    with pytest.raises(ProtocolError, match="nested more than 8 deep"):
        request(nested(9))


def test_the_length_of_an_id_is_limited():
    assert parse_request(json.dumps({"request_id": "i" * 256, "input": "Interrupt"})).id == "i" * 256
    with pytest.raises(ProtocolError, match="longer than 256") as refused:
        parse_request(json.dumps({"request_id": "i" * 257, "input": "Interrupt"}))
    assert refused.value.request_id == "parse_error"


def test_files_have_a_limit_of_their_own():
    with pytest.raises(ProtocolError, match="larger than 8 MiB"):
        request({"Image": {"data": "A" * (12 << 20)}})


@pytest.mark.parametrize(
    "fields, stream",
    [
        ({}, False),
        ({"stream": True}, True),
        ({"": True}, True),
        ({"stream": False, "": True}, False),
        ({"stream": None}, False),
    ],
)
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
        (b'{"request_id":"a","input":{"Multi":["Regenerate"]}}', "a"),
        (b'{"request_id":"a","input":{"Image":{"data":"!"}}}', "a"),
        (b'{"request_id":"a","input":{"Text":"x"},"stream":"yes"}', "a"),
        (b'{"request_id":"a","input":{"Text":"x"},"config":{"max_context_num":0}}', "a"),
        (b'{"request_id":"a","input":{"Text":"x"},"config":{"max_tokens":-1}}', "a"),
        (b'{"request_id":"a","input":{"Text":"x"},"config":[]}', "a"),
        (b'{"request_id":"a","input":{"Text":"x"},"config":{"max_tokens":99999999999}}', "a"),
        (b'{"request_id":"a","input":{"Text":"x"},"config":{"max_tokens":1.5}}', "a"),
        (b'{"request_id":"a","request_id":"b","input":{"Text":"x"}}', "parse_error"),
        (b'{"request_id":"a","input":{"Text":"x","Text":"y"}}', "parse_error"),
        (b'{"request_id":"a","input":{"Image":{"data":""}}}', "a"),
        ('{"request_id":"a","input":{"Image":{"data":"é"}}}'.encode(), "a"),
        (b'{"request_id":"a","input":{"Image":{"data":"R0lGODlh","mime_type":"text/html"}}}', "a"),
        (b'{"request_id":"a","input":{"Image":{"data":"AAAA","mime_type":"image/png"}}}', "a"),
        (b'{"request_id":"a","input":{"File":{"filename":"f","content_type":"text/plain","data":"/w=="}}}', "a"),
        (b'{"request_id":"a","input":{"File":{"filename":"f","content_type":"text/plain","data":"UEsDBAA="}}}', "a"),
        (b'{"request_id":"a","input":{"Instruction":{"command":" "}}}', "a"),
        (b'{"request_id":"a","input":{"ToolConfirmationResponse":{"name":"x","approved":"yes"}}}', "a"),
        (b'{"request_id":"a","input":{"TurnConfirmationResponse":{}}}', "a"),
        (b'{"request_id":"a","input":' + b'{"Multi":[' * 20 + b'{"Text":"x"}' + b"]}" * 20 + b"}", "a"),
    ],
)
def test_bad_frames_name_their_request(frame, id):
    with pytest.raises(ProtocolError) as caught:
        parse_request(frame)
    assert caught.value.request_id == id and str(caught.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
INPUTS = st.sampled_from(
    [
        "Text",
        "Image",
        "File",
        "Multi",
        "Instruction",
        "Interrupt",
        "ToolConfirmationResponse",
        "TurnConfirmationResponse",
    ]
)
PAYLOADS = VALUES | st.dictionaries(
    st.sampled_from(
        [
            "data",
            "mime_type",
            "filename",
            "content_type",
            "command",
            "parameters",
            "name",
            "approved",
            "confirmed",
            "reason",
        ]
    ),
    VALUES,
)
REQUESTS = st.fixed_dictionaries(
    {"request_id": st.text(), "input": st.dictionaries(INPUTS, PAYLOADS, min_size=1, max_size=1)},
    optional={"config": VALUES, "stream": VALUES, "": VALUES, "use_tools": VALUES},
)


@given(st.binary(max_size=200) | (VALUES | REQUESTS).map(lambda value: json.dumps(value).encode()))
def test_no_frame_raises_anything_else(data):
    try:
        parse_request(data)
    except ProtocolError:
        pass


# -- access -------------------------------------------------------------------------------------------

TOKEN = "secret-token-1234"
LOCAL = Access("127.0.0.1", 8080)
OPEN = Access("0.0.0.0", 1, TOKEN)
INSECURE = Access("0.0.0.0", 1)
PROXIED = Access("127.0.0.1", 1, origins=frozenset({"https://my.site"}))
AS_PROTOCOL = "spindle, spindle.token.c2VjcmV0LXRva2VuLTEyMzQ"


@pytest.mark.parametrize(
    "access, headers, status",
    [
        (LOCAL, {"Host": "127.0.0.1:8080"}, None),
        (LOCAL, {"Host": "LocalHost:8080"}, None),
        (LOCAL, {"Host": "[::1]:8080"}, None),
        (LOCAL, {"Host": "evil.example:8080"}, 403),
        (LOCAL, {"Host": "127.0.0.1.evil.example:8080"}, 403),
        (LOCAL, {"Host": "localhost:8080@evil.example"}, 403),
        (LOCAL, {"Host": "127.0.0.1:8080, evil.example"}, 403),
        (LOCAL, {"Host": "127.0.0.1:9"}, None),  # a forwarded port; Origin still guards
        (LOCAL, {"Host": "127.0.0.1:99999999"}, 403),
        (LOCAL, {"Host": "[::1"}, 403),
        (LOCAL, {}, 403),
        (LOCAL, {"Host": "localhost:8080", "Origin": "http://localhost:8080"}, None),
        (LOCAL, {"Host": "localhost:8080", "Origin": "http://127.0.0.1:8080"}, 403),
        (LOCAL, {"Host": "localhost:8080", "Origin": "http://localhost:8081"}, 403),
        (LOCAL, {"Host": "localhost:8080", "Origin": "http://localhost:8080.evil.example"}, 403),
        (LOCAL, {"Host": "localhost:8080", "Origin": "http://evil.example"}, 403),
        (LOCAL, {"Host": "localhost:8080", "Origin": "null"}, 403),
        (LOCAL, {"Host": "localhost:8080", "Origin": ""}, 403),
        (OPEN, {"Host": "box:1"}, 401),
        (OPEN, {"Host": "box:1", "Authorization": "Bearer wrong"}, 401),
        (OPEN, {"Host": "box:1", "Authorization": "Bearer \udcff\xff"}, 401),
        (OPEN, {"Host": "box:1", "Authorization": f"Basic {TOKEN}"}, 401),
        (OPEN, {"Host": "box:1", "Authorization": f"Bearer {TOKEN}"}, None),
        (OPEN, {"Host": "box:1", "Authorization": f"bearer {TOKEN}"}, None),
        (OPEN, {"Host": "box:1", "Sec-WebSocket-Protocol": AS_PROTOCOL}, None),
        (OPEN, {"Host": "box:1", "Sec-WebSocket-Protocol": "spindle.token.????"}, 401),
        # Without a token a name could be anybody's, so only plain addresses will do.
        (INSECURE, {"Host": "192.168.1.5:1"}, None),
        (INSECURE, {"Host": "evil.example:1", "Origin": "http://evil.example:1"}, 403),
        (PROXIED, {"Host": "localhost:1", "Origin": "https://my.site"}, None),
        (PROXIED, {"Host": "my.site", "Origin": "https://my.site"}, None),
        (PROXIED, {"Host": "other.site"}, 403),
    ],
)
def test_who_may_connect(access, headers, status):
    refusal = access.check(headers)
    assert (refusal.status if refusal else None) == status


def test_addresses():
    assert parse_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert parse_address(":80") == ("127.0.0.1", 80)
    assert parse_address("[::1]:80") == ("::1", 80)
    assert is_loopback("127.9.9.9") and is_loopback("localhost") and not is_loopback("0.0.0.0")
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:3838"):
        parse_address("nonsense")
