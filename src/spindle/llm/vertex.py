"""The `google-vertex` API: Gemini on Google Cloud, with the bodies and answers of the Gemini API.

A request carries an API key, or a token that google-auth gets with Application Default Credentials.
"""

import asyncio
import importlib
from functools import cache
from typing import Any

from spindle.llm.errors import ModelError
from spindle.llm.exchange import Call, over_http
from spindle.llm.google import GoogleReader, google_body
from spindle.llm.live import LiveMessage
from spindle.llm.stream import Request, StreamOptions
from spindle.shapes.model import Model

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


@over_http
async def stream(model: Model, request: Request, options: StreamOptions, live: LiveMessage) -> Call:
    url = vertex_url(model, options)
    if options.api_key:
        headers = {"x-goog-api-key": options.api_key}
    else:
        token = await asyncio.to_thread(_token, options.env.get("GOOGLE_APPLICATION_CREDENTIALS"))
        headers = {"authorization": f"Bearer {token}"}
    return Call(
        url=url,
        headers=headers,
        body=google_body(model, request, options),
        reader=GoogleReader(live),
    )


def vertex_url(model: Model, options: StreamOptions) -> str:
    """Return where to post: in a project, or, with a key and no project, in the express mode. Raises `ModelError`."""
    project = options.variable("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT")
    location = options.variable("GOOGLE_CLOUD_LOCATION")
    if not options.api_key and not (project and location):
        raise ModelError(
            "Google Vertex needs a project and a location: set GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION"
        )
    in_project = project and location
    base = model.base_url.rstrip("/")
    if not base or "{location}" in base:
        base = _google_host(location if in_project else "global")
    version = "" if base.endswith(("/v1", "/v1beta1")) else "/v1"
    place = f"/projects/{project}/locations/{location}" if in_project else ""
    return f"{base}{version}{place}/publishers/google/models/{model.id}:streamGenerateContent?alt=sse"


def _google_host(location: str) -> str:
    if location == "global":
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


def _token(file: str | None) -> str:
    """Return an access token of the credentials in `file`, or of those that google-auth finds. Blocks."""
    try:
        credentials = _credentials(file)
        if not credentials.valid:
            credentials.refresh(_google("google.auth.transport.requests").Request())
    except ModelError:
        raise
    except Exception as error:  # google-auth, its HTTP client or the file
        hint = "" if file else " (gcloud auth application-default login makes some)"
        raise ModelError(f"Google Cloud credentials{f' in {file}' if file else ''}: {error}{hint}") from None
    return str(credentials.token)


@cache
def _credentials(file: str | None) -> Any:
    """Return credentials. They hold their token until it expires, so they are cached."""
    auth = _google("google.auth")
    found, _ = auth.load_credentials_from_file(file, [_SCOPE]) if file else auth.default([_SCOPE])
    return found


def _google(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        from spindle.base.installation import extra_command

        raise ModelError(
            f"Google Cloud credentials need google-auth: {extra_command('vertex')}. "
            "Without it, set GOOGLE_CLOUD_API_KEY."
        ) from None
