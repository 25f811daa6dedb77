"""Where models on Azure are: each user has an own address, and deployments with names of their choice."""

from urllib.parse import urlsplit, urlunsplit

from spindle.llm.errors import ModelError
from spindle.llm.stream import StreamOptions
from spindle.shapes.model import Model

AZURE = "azure"
"""The provider."""
_API_PATH = "/openai/v1"
_ROOTS = ("", "/openai", _API_PATH, f"{_API_PATH}/responses")
"""Paths that stand for the resource as a whole; any other is the path of a gateway and stays as it is."""


def azure_base(model: Model, options: StreamOptions) -> str:
    """Return the address of the API. Raises `ModelError` if the Azure resource is not named."""
    base, resource = options.variable("AZURE_OPENAI_BASE_URL"), options.variable("AZURE_OPENAI_RESOURCE_NAME")
    if not base:
        base = f"https://{resource}.openai.azure.com" if resource else model.base_url
    if not base:
        raise ModelError("Set AZURE_OPENAI_BASE_URL or AZURE_OPENAI_RESOURCE_NAME to use Azure OpenAI")
    base = base.strip()
    parts = urlsplit(base if "://" in base else f"https://{base}")
    path = parts.path.rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, _API_PATH if path in _ROOTS else path, "", ""))


def deployment(model_id: str, options: StreamOptions) -> str:
    """Return the Azure deployment of a model: `AZURE_OPENAI_DEPLOYMENT_NAME_MAP` holds `model=deployment,…`."""
    pairs = options.variable("AZURE_OPENAI_DEPLOYMENT_NAME_MAP").split(",")
    names = {model.strip(): name.strip() for model, _, name in (pair.partition("=") for pair in pairs)}
    return names.get(model_id) or model_id
