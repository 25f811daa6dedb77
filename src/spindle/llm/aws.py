"""What Amazon's services need besides JSON: regions, credentials, signatures, and the frames of an event stream.

Signatures and frames are made here by hand, because importing botocore takes longer than starting the whole agent. Keys
that are neither in the environment nor in `auth.json` (profiles, SSO, roles) are found by botocore, if it is installed.
"""

import asyncio
import hashlib
import hmac
import importlib
import re
import struct
import time
import zlib
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from spindle.llm.errors import ModelError
from spindle.llm.stream import StreamOptions

_ALGORITHM = "AWS4-HMAC-SHA256"
_NO_CREDENTIALS = (
    "No AWS credentials were found. Set AWS_BEARER_TOKEN_BEDROCK, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "or AWS_PROFILE; `aws sso login` renews a profile of that kind."
)


class AwsKeys(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"


# -- regions and credentials ---------------------------------------------------------------------


async def find_region(options: StreamOptions) -> str | None:
    """Return the region that the user has chosen, in the environment or in an AWS profile."""
    if region := options.variable("AWS_REGION", "AWS_DEFAULT_REGION"):
        return region
    if not (profile := options.variable("AWS_PROFILE")):
        return None
    return await asyncio.to_thread(_profile_region, profile)


def _profile_region(profile: str) -> str | None:
    try:
        region = _session(profile).get_config_variable("region")
    except ModelError:
        return None  # the search for credentials gives a better error text
    except Exception as error:  # botocore has no common base for a profile that is not there
        raise ModelError(f"AWS profile {profile!r}: {error}") from None
    return str(region) if region else None


async def find_credentials(options: StreamOptions) -> AwsKeys:
    """Return the keys to sign with. Raises `ModelError`.

    A profile in `auth.json` comes before keys of the environment, and those before a profile of the environment.
    """
    access, secret = options.variable("AWS_ACCESS_KEY_ID"), options.variable("AWS_SECRET_ACCESS_KEY")
    if access and secret and not options.env.get("AWS_PROFILE"):
        return AwsKeys(access, secret, options.variable("AWS_SESSION_TOKEN") or None)
    return await asyncio.to_thread(_from_botocore, options.variable("AWS_PROFILE") or None)


def _from_botocore(profile: str | None) -> AwsKeys:
    try:
        keys = _chain(profile).get_frozen_credentials()
    except ModelError:
        raise
    except Exception as error:  # expired SSO, an unknown profile, a role that cannot be assumed
        raise ModelError(f"AWS credentials{f' of profile {profile!r}' if profile else ''}: {error}") from None
    return AwsKeys(keys.access_key, keys.secret_key, keys.token)


@cache
def _chain(profile: str | None) -> Any:
    """Return credentials, which renew themselves and so are cached. A failure is not: the user may set some up."""
    if found := _session(profile).get_credentials():
        return found
    raise ModelError(_NO_CREDENTIALS)


def _session(profile: str | None) -> Any:
    try:
        botocore = importlib.import_module("botocore.session")
    except ModuleNotFoundError:
        from spindle.base.installation import extra_command

        raise ModelError(
            f"AWS profiles, SSO and roles need botocore: {extra_command('bedrock')}. "
            "Without it, set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        ) from None
    return botocore.Session(profile=profile)


# -- signatures ----------------------------------------------------------------------------------


def signed_headers(
    url: str, headers: Mapping[str, str], body: bytes, keys: AwsKeys, region: str, service: str, now: float
) -> dict[str, str]:
    """Return the headers that sign a POST (Signature Version 4); of `headers` only the content type is signed."""
    parts = urlsplit(url)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    covered = {"host": parts.netloc.rpartition("@")[2], "x-amz-date": stamp}
    if keys.token:
        covered["x-amz-security-token"] = keys.token
    if kind := headers.get("content-type"):
        covered["content-type"] = kind
    names = ";".join(sorted(covered))
    canonical = "\n".join(
        (
            "POST",
            quote(parts.path or "/", safe="/~"),  # escapes in the path are escaped again
            parts.query,
            *(f"{name}:{' '.join(covered[name].split())}" for name in sorted(covered)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    del covered["host"]  # the HTTP client sets it
    credential = f"Credential={keys.access_key}/{scope}"
    return covered | {"authorization": f"{_ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}"}


def arn_region(model_id: str) -> str | None:
    """Return the region in the ARN of an inference profile."""
    found = re.match(r"arn:aws(?:-[a-z0-9-]+)?:bedrock:([a-z0-9-]+):", model_id)
    return found[1] if found else None


# -- event streams -------------------------------------------------------------------------------

_MAX_FRAME_BYTES = 64 * 1024 * 1024
_PRELUDE_BYTES = 12
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Header type → bytes of its value; values of type 6 (bytes) and 7 (text) begin with their length."""


class EventStreamParser:
    """Splits `application/vnd.amazon.eventstream` into events, each as the JSON object `{type: payload}`.

    The object of an exception also has its type under `exception`. Raises `ModelError` for a damaged frame.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._has_begun = False

    def feed(self, data: bytes) -> list[bytes]:
        self._rest += data
        events, start = [], 0
        while (size := self._frame_size(start)) is not None:
            frame = bytes(memoryview(self._rest)[start : start + size])
            self._has_begun = True
            events.append(_event(frame))
            start += size
        del self._rest[:start]
        return events

    def close(self) -> list[bytes]:
        if self._rest and not self._has_begun:
            raise ModelError("Stream ended without a complete event")
        return []  # a frame that was cut off is not an event; the reader knows whether its answer is complete

    def _frame_size(self, start: int) -> int | None:
        """Return the size of the frame that begins at `start`; None if the frame is not complete yet."""
        if len(self._rest) - start < _PRELUDE_BYTES:
            return None
        size, headers, checksum = struct.unpack_from(">III", self._rest, start)
        if zlib.crc32(memoryview(self._rest)[start : start + 8]) != checksum:
            begin = bytes(self._rest[start : start + 200]).decode("utf-8", "replace")
            raise ModelError(f"The server did not answer with an event stream: {begin}")
        if size > _MAX_FRAME_BYTES or size < headers + _PRELUDE_BYTES + 4:
            raise ModelError(f"The server sent an event of {size} bytes, which cannot be")
        return size if len(self._rest) - start >= size else None


def _event(frame: bytes) -> bytes:
    """Return the content of a frame as one JSON object."""
    if zlib.crc32(frame[:-4]) != int.from_bytes(frame[-4:], "big"):
        raise ModelError("The server sent an event that was damaged on its way (its checksum is wrong)")
    end = _PRELUDE_BYTES + int.from_bytes(frame[4:8], "big")
    headers = _headers(frame[_PRELUDE_BYTES:end])
    is_json = headers.get(":content-type", "application/json").startswith("application/json")
    payload = (frame[end:-4] if is_json else b"") or b"{}"
    kind = headers.get(":message-type", "event")
    if kind == "error":
        raise ModelError(f"{headers.get(':error-code', 'Error')}: {headers.get(':error-message', '')}")
    name = re.sub(r"\W", "", headers.get(":exception-type" if kind == "exception" else ":event-type", "")).encode()
    return (
        b'{"%s":%s,"exception":"%s"}' % (name, payload, name) if kind == "exception" else b'{"%s":%s}' % (name, payload)
    )


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers that are text."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode(), data[name_end]
            at = name_end + 1
            if kind in (6, 7):
                size = int.from_bytes(data[at : at + 2], "big")
                at += 2
                if kind == 7:
                    found[name] = data[at : at + size].decode()
            else:
                size = _SIZES[kind]
            at += size
    except (IndexError, KeyError, UnicodeDecodeError):
        raise ModelError("The server sent an event whose headers cannot be read") from None
    return found
