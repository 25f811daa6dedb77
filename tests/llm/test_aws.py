"""Signatures and event-stream frames, beside those of botocore; where keys and regions come from."""

import asyncio
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.llm import aws
from spindle.llm.aws import AwsKeys, EventStreamParser, find_credentials, find_region, signed_headers
from spindle.llm.errors import ModelError
from spindle.llm.stream import StreamOptions

from .frames import event, exception, frame

pytest.importorskip("botocore", reason="botocore is not installed")
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as TheirCredentials
from botocore.eventstream import EventStreamBuffer

TIME = 1_700_000_000.0
STAMP = "20231114T221320Z"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    aws._chain.cache_clear()


# -- signatures ----------------------------------------------------------------------------------


def their_authorization(url: str, headers: dict[str, str], body: bytes, keys: AwsKeys, region: str) -> str:
    """Sign with botocore what we sent, at the time we sent it."""
    request = AWSRequest("POST", url, headers=headers, data=body)
    signer = SigV4Auth(TheirCredentials(*keys), "bedrock", region)
    request.context["timestamp"] = headers["X-Amz-Date"]
    text = signer.string_to_sign(request, signer.canonical_request(request))
    names = signer.signed_headers(signer.headers_to_sign(request))
    signature = signer.signature(text, request)
    return f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={names}, Signature={signature}"


@pytest.mark.parametrize("token", [None, "session/token+=="])
@pytest.mark.parametrize(
    "url",
    [
        "https://bedrock-runtime.us-east-1.amazonaws.com/model/us.anthropic.claude-x-v1%3A0/converse-stream",
        "https://vpce-1.example.com:8443/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ax%2Fy/converse-stream",
        "http://127.0.0.1:4000/model/a~b_c.d-e%20f/converse-stream",
        "https://gateway.example/?b=2",
    ],
)
@pytest.mark.parametrize("body", [b"", b'{"messages":[]}', "ä\u2028".encode()])
def test_signatures_are_those_of_botocore(url: str, token: str | None, body: bytes) -> None:
    keys = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", token)
    ours = signed_headers(url, {"content-type": "application/json"}, body, keys, "eu-west-1", "bedrock", TIME)
    sent = {"Content-Type": "application/json", "X-Amz-Date": STAMP}
    if token:
        sent["X-Amz-Security-Token"] = token
        assert ours["x-amz-security-token"] == token
    assert ours["x-amz-date"] == STAMP
    assert ours["authorization"] == their_authorization(url, sent, body, keys, "eu-west-1")


def test_keys_are_not_shown() -> None:
    assert "SECRET" not in repr(AwsKeys("ID", "SECRET"))


# -- frames --------------------------------------------------------------------------------------

STREAM = b"".join(
    (
        event("messageStart", role="assistant"),
        event("contentBlockDelta", contentBlockIndex=0, delta={"text": "Grüße"}),
        exception("throttlingException", "Too many"),
        frame(b"", event_type="empty"),
    )
)
EVENTS = [
    b'{"messageStart":{"role": "assistant"}}',
    b'{"contentBlockDelta":{"contentBlockIndex": 0, "delta": {"text": "Gr\\u00fc\\u00dfe"}}}',
    b'{"throttlingException":{"message": "Too many"},"exception":"throttlingException"}',
    b'{"empty":{}}',
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_frames_may_be_cut_anywhere(cuts: list[int]) -> None:
    parser, found = EventStreamParser(), []
    bounds = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(bounds):
        found += parser.feed(STREAM[start:end])
    assert found + parser.close() == EVENTS


def test_botocore_reads_the_same_frames() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(STREAM)
    theirs = [(message.headers, message.payload) for message in buffer]
    assert [json.loads(payload or b"{}") for _, payload in theirs] == [
        next(iter(json.loads(e).values())) for e in EVENTS
    ]
    assert theirs[2][0][":exception-type"] == "throttlingException"


@given(st.integers(0, len(STREAM) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed_where_botocore_notices_it(place: int, change: int) -> None:
    damaged = bytearray(STREAM)
    damaged[place] ^= change
    buffer, theirs = EventStreamBuffer(), 0
    buffer.add_data(bytes(damaged))
    try:
        theirs = len(list(buffer))
        failed = False
    except Exception:
        failed = True
    ours, refused = EventStreamParser(), False
    try:
        found = ours.feed(bytes(damaged))
    except ModelError:
        refused = True
    assert refused or not failed
    assert refused or len(found) == theirs


def header(kind: int, value: bytes) -> bytes:
    return b"\x01x" + bytes([kind]) + value


def test_headers_of_every_type_are_skipped() -> None:
    values = {0: b"", 1: b"", 2: b"1", 3: b"12", 4: b"1234", 5: b"8" * 8, 6: b"\0\2ab", 8: b"8" * 8, 9: b"9" * 16}
    head = b"".join(header(kind, value) for kind, value in values.items())
    found = aws._headers(head + b"\x0b:event-type\x07\0\4stop")
    assert found == {":event-type": "stop"}


@pytest.mark.parametrize("head", [b"\x01x\x2a", b"\x01", b"\xffxx", b"\x01x\x07\0\2\xff\xff"])
def test_headers_that_cannot_be_read(head: bytes) -> None:
    with pytest.raises(ModelError, match="headers cannot be read"):
        aws._headers(head)


def test_an_error_of_the_stream_itself() -> None:
    with pytest.raises(ModelError, match="InternalError: went wrong"):
        EventStreamParser().feed(
            frame(b"", message_type="error", error_code="InternalError", error_message="went wrong")
        )


def test_something_else_than_frames() -> None:
    with pytest.raises(ModelError, match="did not answer with an event stream: <html>Sign in"):
        EventStreamParser().feed(b"<html>Sign in to the wifi</html>")


# -- where keys come from ------------------------------------------------------------------------


def credentials(**env: str) -> AwsKeys:
    return asyncio.run(find_credentials(StreamOptions(env=env)))


def test_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert credentials() == AwsKeys("id", "secret", None)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    assert credentials() == AwsKeys("id", "secret", "token")


def profiles(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = ds\n"
        "[team]\naws_access_key_id = t\naws_secret_access_key = ts\naws_session_token = tt\n"
    )
    (tmp_path / "config").write_text("[profile team]\nregion = eu-north-1\n[profile bare]\n")


def test_profiles_are_found_by_botocore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles(tmp_path)
    assert credentials() == AwsKeys("d", "ds", None)
    assert credentials(AWS_PROFILE="team") == AwsKeys("t", "ts", "tt")
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert credentials() == AwsKeys("t", "ts", "tt")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert credentials() == AwsKeys("id", "secret")
    assert credentials(AWS_PROFILE="team") == AwsKeys("t", "ts", "tt")  # what is stored for the provider


@pytest.mark.parametrize(("env", "text"), [({}, "No AWS credentials were found"), ({"AWS_PROFILE": "nope"}, "nope")])
def test_no_keys(env: dict[str, str], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        credentials(**env)


def test_without_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(ModelError, match=r"pip install .*'botocore>="):
        credentials(AWS_PROFILE="team")
    assert asyncio.run(find_region(StreamOptions(env={"AWS_PROFILE": "team"}))) is None


@pytest.mark.parametrize(
    ("env", "region"),
    [
        ({}, None),
        ({"AWS_DEFAULT_REGION": "us-west-1"}, "us-west-1"),
        ({"AWS_DEFAULT_REGION": "us-west-1", "AWS_REGION": "us-west-2"}, "us-west-2"),
        ({"AWS_PROFILE": "team"}, "eu-north-1"),
        ({"AWS_PROFILE": "bare"}, None),
    ],
)
def test_regions(tmp_path: Path, env: dict[str, Any], region: str | None) -> None:
    profiles(tmp_path)
    assert asyncio.run(find_region(StreamOptions(env=env))) == region


def test_keys_that_are_set_up_later_are_found(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No AWS credentials were found"):
        credentials()
    profiles(tmp_path)
    assert credentials() == AwsKeys("d", "ds", None)
