"""Every model that can be named, and the keys to use it.

Built-in providers come from the catalogue, others from `models.json`, from extensions, or are servers on this
machine. Models of a provider are put together when that provider is first asked about.
"""

import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spindle.base.settings import LocalSettings
from spindle.models.catalog import ProviderInfo, builtin_providers, load_catalog, nearest_model
from spindle.models.credentials import (
    FORMER_NAMES,
    SIGN_IN_PROVIDERS,
    UNSUPPORTED,
    AuthStore,
    Entry,
    MissingCredentials,
    ModelAuth,
    UnresolvedValue,
    ambient_source,
    is_resolvable,
    referred_variables,
    resolve_value,
    stored_env,
)
from spindle.models.loopback import LOOPBACK, is_loopback_url, list_models, server_url
from spindle.models.models_file import (
    ModelsFile,
    ProviderSpec,
    check_provider,
    merge_provider,
    open_model,
    read_models_file,
)
from spindle.shapes.model import Model

if TYPE_CHECKING:
    from spindle.llm.stream import StreamFunction

LOCAL = "local"
"""The provider whose models are files on this disk: no server to set up, no key."""

SCRIPTED = "scripted"
"""The provider whose models are script files: no server, no key."""

NO_MODEL = """\
No model yet. Store a key: spindle keys set PROVIDER (or ANTHROPIC_API_KEY=…),
or sign in: spindle login; or start Ollama or LM Studio: --model ollama/NAME;
or let a small model run right here: spindle models pull smollm2 (93 MB)."""
"""What to do when there is no model, wherever that is told."""

VIRTUAL = "virtual"
"""The API of virtual models (`models/virtual`)."""

CUSTOM = "custom"
"""The provider of a model of which a program gives only the address and the name."""

_SHARED_VARIABLES = ("AWS_", "GOOGLE_", "GH_TOKEN", "GITHUB_TOKEN")
"""Other programs (aws, gcloud, gh, git) need these."""
_OURS = ("SPINDLE_REMOTE_TOKEN", "SPINDLE_STORE")


class ModelRegistry:
    def __init__(self, agent_dir: Path) -> None:
        self.auth = AuthStore(agent_dir)
        self.local = LocalSettings()
        """How to run models of this disk."""
        self._agent_dir = agent_dir
        self._file: ModelsFile | None = None
        self._registered: dict[str, ProviderSpec] = {}
        """Providers of extensions."""
        self._streams: dict[str, StreamFunction] = {}
        """Stream functions of extensions, by provider."""
        self._probed: dict[str, list[Model]] = {}
        """Models that servers on this machine have listed."""
        self._models: dict[str, list[Model]] = {}
        self._resting: dict[str, float] = {}
        """Models that have failed, and until when others are asked in their place; by the clock of the process."""

    def sibling(self) -> "ModelRegistry":
        """Return a registry for another session: the same keys and files, no providers of extensions."""
        other = ModelRegistry(self._agent_dir)
        other.auth, other._file, other._probed = self.auth, self._file, dict(self._probed)
        other._resting = self._resting
        return other

    @property
    def is_extended(self) -> bool:
        return bool(self._registered)

    # -- models ----------------------------------------------------------------------------------

    @property
    def file(self) -> ModelsFile:
        """The user's `models.json`, read on first use."""
        if self._file is None:
            self._file = read_models_file(self._agent_dir / "models.json", self._known())
        return self._file

    @property
    def error(self) -> str | None:
        return self.file.error

    def reload(self) -> None:
        """Read `models.json` and `auth.json` again when next needed."""
        self._file = None
        self._models.clear()
        self.auth.forget()

    def providers(self) -> list[str]:
        """Return all provider names: built-in ones in order of preference, then the user's, then local ones."""
        own = [*self.file.providers, *self._registered]
        return list(dict.fromkeys([*builtin_providers(), *own, LOCAL, *LOOPBACK, SCRIPTED]))

    def all(self, provider: str | None = None) -> list[Model]:
        """Return every model, or every model of one provider, with and without a key."""
        if provider is None:
            return [model for name in self.providers() for model in self.all(name)]
        if provider not in self._models:
            self._models[provider] = self._build(provider)
        return self._models[provider]

    def available(self) -> list[Model]:
        """Return the models that can be asked: there is a key and we speak their API. Runs no command, tests no key."""
        ready = [name for name in self.providers() if self.has_credentials(name)]
        allowed = [model for name in ready for model in self.auth.allowed(name, self.all(name))]
        return [model for model in allowed if self.speaks(model)]

    def find(self, provider: str, model_id: str) -> Model | None:
        """Return one model by its exact name. Local providers may have models that they do not list."""
        for model in self.all(provider):
            if model.id == model_id:
                return model
        for now, before in FORMER_NAMES.items():
            if provider == before:
                return self.find(now, model_id)
        if provider == LOCAL and model_id:
            from spindle.llm.local import LocalModelError

            try:
                return self.local_model(model_id)
            except LocalModelError:
                return None
        if provider == SCRIPTED and model_id:
            model = open_model(SCRIPTED, model_id, "scripted", model_id, free=True)
            return replace(model, reasoning=True, input=["text", "image"])
        if provider in LOOPBACK and model_id:
            return open_model(provider, model_id, "openai-completions", self._server(provider))
        return None

    def find_available(self, provider: str, model_id: str) -> Model | None:
        """Return one model by its exact name, listed or not, if there is a key for it and we speak its API."""
        if not self.has_credentials(provider):
            return None
        model = self.find(provider, model_id) or self.unlisted(provider, model_id)
        return model if model and self.speaks(model) else None

    def unlisted(self, provider: str, model_id: str) -> Model | None:
        """Return a model that the provider does not list; None if its models are those that the user listed.

        Its limits are those of the nearest model of its family. Of a provider with no models at all, only the address
        is known.
        """
        own = self._registered.get(provider) or self.file.providers.get(provider)
        if not model_id or (own and own.models and provider not in builtin_providers()):
            return None
        models = self.all(provider)
        if models:
            spoken = [model for model in models if self.speaks(model)]
            base = nearest_model(model_id, spoken, self.default_model_id(provider) or "")
            return base and replace(base, id=model_id, name=model_id, cost_unknown=True)
        if own and own.api and own.base_url:
            return open_model(provider, model_id, own.api, own.base_url)
        return None

    def speaks(self, model: Model) -> bool:
        from spindle.llm.stream import BUILTIN_APIS

        return model.api in BUILTIN_APIS or any(self._registered[name].api == model.api for name in self._streams)

    def source_of(self, model: Model) -> str:
        for place, specs in (("an extension", self._registered), ("models.json", self.file.providers)):
            spec = specs.get(model.provider)
            if spec and (model.id in spec.model_overrides or any(item.id == model.id for item in spec.models)):
                return place
        catalog = load_catalog(model.provider, self._agent_dir)
        listed = catalog and catalog.source_of(model.id)
        if listed or model.provider in builtin_providers():
            return listed or "none: it is not in the catalogue"
        return "the model's file" if model.provider in (LOCAL, SCRIPTED) else "the server"

    def default_model_id(self, provider: str) -> str | None:
        return self._info(provider).default

    def probe(self, provider: str) -> list[Model]:
        """Ask a local server for its models and remember them. Blocks; raises `ServerUnreachable`."""
        self._probed[provider] = list_models(provider, self._server(provider))
        self._models.pop(provider, None)
        return self.all(provider)

    def rest(self, model: Model, seconds: float) -> None:
        """Let other models of its chain answer in the place of one that has failed."""
        self._resting[model.full_name] = time.monotonic() + seconds

    def is_resting(self, model: Model) -> bool:
        return self._resting.get(model.full_name, 0.0) > time.monotonic()

    def local_model(self, model_id: str) -> Model:
        """Return the model in a file, by its name or path. Raises `LocalModelError`."""
        from spindle.llm.local import find_local_model

        size, threads = self.local.context_size, self.local.threads
        return find_local_model(self._agent_dir / "models", model_id, context_size=size, threads=threads)

    # -- providers of extensions -----------------------------------------------------------------

    def register_provider(self, name: str, config: Mapping[str, Any], stream: "StreamFunction | None" = None) -> None:
        """Add or change a provider, with the keys of `models.json`. Raises `ValueError`.

        Its models, if any, replace all of that provider. `stream` asks the models whose API is `config["api"]`.
        """
        known = self._known() | self.file.providers.keys()
        self._registered[name] = check_provider(name, dict(config), known=name in known)
        self._streams.pop(name, None)
        if stream is not None:
            self._streams[name] = stream
        self._models.pop(name, None)

    def unregister_provider(self, name: str) -> None:
        self._registered.pop(name, None)
        self._streams.pop(name, None)
        self._models.pop(name, None)

    def stream_for(self, model: Model) -> "StreamFunction":
        """Return the function that asks a model. Raises `LookupError` if nothing here speaks its API.

        A function of an extension is for the models of its provider; no other provider of a built-in API is touched.
        """
        from spindle.llm.stream import BUILTIN_APIS, builtin_stream

        for name in [model.provider] if model.api in BUILTIN_APIS else [model.provider, *self._streams]:
            if name in self._streams and self._registered[name].api == model.api:
                return self._streams[name]
        return builtin_stream(model.api)

    # -- keys ------------------------------------------------------------------------------------

    def has_credentials(self, provider: str) -> bool:
        return self.credential_source(provider) is not None

    def credential_source(self, provider: str) -> str | None:
        """Tell where the provider's key comes from, or that it needs none; None if it is missing."""
        if provider in (LOCAL, SCRIPTED) or provider in LOOPBACK:
            return "not needed"
        if self._lacking(provider):
            return None
        variables = self._info(provider).env
        found = self.auth.source(provider, variables)
        if found and found not in variables:
            return found
        # A key written for this provider comes before the environment.
        for place, specs in (("extension", self._registered), ("models.json", self.file.providers)):
            if (spec := specs.get(provider)) and spec.api_key and is_resolvable(spec.api_key):
                return place
        spec = self._registered.get(provider) or self.file.providers.get(provider)
        if found is None and spec and spec.base_url and not spec.api_key and is_loopback_url(spec.base_url):
            return "not needed"
        return found or ambient_source(provider, self.auth.stored(provider))

    def secret_variables(self, kept: Iterable[str]) -> frozenset[str]:
        """Return the names of the variables that keys are read from and that no other program needs; not `kept`."""
        names = self.auth.variables()
        for spec in (*self.file.providers.values(), *self._registered.values()):
            for value in (spec.api_key or "", *(spec.headers or {}).values()):
                names.update(referred_variables(value))
        return (_builtin_variables() | {name for name in names if _is_secret(name)}).difference(kept)

    async def auth_for(self, model: Model) -> ModelAuth:
        """Return key and headers for a request. Raises `MissingCredentials`."""
        provider = model.provider
        specs = [spec for spec in (self.file.providers.get(provider), self._registered.get(provider)) if spec]
        try:
            entry = self.auth.stored(provider)
            found = await self._key(provider, entry, specs)
        except UnresolvedValue as error:
            raise MissingCredentials(f'Failed to resolve API key for provider "{provider}" from {error}') from None
        if found is None and not self._is_ready(model):
            raise MissingCredentials(self.no_key_text(provider))
        auth = found or ModelAuth()
        if auth.api_key and (header := self._info(provider).key_header):
            auth = ModelAuth(None, {header: f"Bearer {auth.api_key}"})
        headers = {**(model.headers or {}), **auth.headers}
        for spec in specs:
            headers.update(await self._headers(spec, model))
            if spec.auth_header and auth.api_key:
                headers["Authorization"] = f"Bearer {auth.api_key}"
        env = stored_env(entry or {})
        own_address = any(spec.base_url for spec in specs)
        return ModelAuth(auth.api_key, headers, env, None if own_address else auth.base_url, auth.if_refused)

    async def auth_after_refusal(self, model: Model, refused: ModelAuth) -> ModelAuth | None:
        """Return new credentials after a server refused those of a login; None if there are none."""
        try:
            renewed = await self.auth.replace_refused(model.provider, refused.api_key)
            return await self.auth_for(model) if renewed else None
        except MissingCredentials:
            return None

    def require_credentials(self, model: Model) -> None:
        """Raise `MissingCredentials` if a request to the model could not even be tried."""
        if not self.speaks(model):
            raise MissingCredentials(self.no_api_text(model))
        if not self._is_ready(model):
            raise MissingCredentials(self.no_key_text(model.provider))

    def _is_ready(self, model: Model) -> bool:
        """Say whether there is a key, or none is needed, as for a program's own model on this machine."""
        if self.has_credentials(model.provider):
            return True
        return is_loopback_url(model.base_url) and model.provider not in self.providers()

    def no_key_text(self, provider: str) -> str:
        if provider == CUSTOM:
            return "No API key was given for the model at base_url. Give api_key: any text, if the server wants none."
        if missing := self._lacking(provider):
            ways = [f"set {' and '.join(missing)}", "give its baseUrl in models.json"]
            return f"No address for {provider}.\n\nTo use it, {' or '.join(ways)}."
        variables = sorted(self._info(provider).env, key=lambda name: not name.endswith("_API_KEY"))
        ways = [f"store its key (spindle keys set {provider})"]
        ways += [f"set {variables[0]}"] if variables else []
        ways.append("pass --api-key")
        if provider in SIGN_IN_PROVIDERS:
            ways.insert(0, f"sign in (spindle login {provider})")
        stored = self.auth.stored(provider) or {}
        why = f" {UNSUPPORTED[provider]}" if stored.get("type") == "oauth" and provider in UNSUPPORTED else ""
        return f"No API key found for {provider}.{why}\n\nTo use it, {', '.join(ways[:-1])} or {ways[-1]}."

    def no_api_text(self, model: Model) -> str:
        return (
            f'Cannot use {model.provider}/{model.id}: it speaks the API "{model.api}", which this version of Spindle '
            "does not. Choose another model (--list-models), or add the API with an extension."
        )

    def no_model_text(self) -> str:
        """Return how to get a model: `NO_MODEL`, and why the logins that are there do not count."""
        logins = [name for name, entry in self.auth.entries().items() if entry.get("type") == "oauth"]
        return NO_MODEL + "".join(f"\n{UNSUPPORTED[name]}" for name in logins if name in UNSUPPORTED)

    # -- inside ----------------------------------------------------------------------------------

    def _known(self) -> set[str]:
        """Return providers whose protocol and address we know."""
        return {name for name, info in builtin_providers().items() if info.default} | LOOPBACK.keys()

    def _info(self, provider: str) -> ProviderInfo:
        return builtin_providers().get(provider) or ProviderInfo(provider)

    def _lacking(self, provider: str) -> list[str]:
        """Return the variables that the provider's addresses are made of and that are not set."""
        spec = self.file.providers.get(provider)
        if spec and spec.base_url:
            return []
        return [name for name in self._info(provider).needs if not self.auth.variable(provider, name)]

    def _server(self, provider: str) -> str:
        spec = self.file.providers.get(provider)
        return spec.base_url.rstrip("/") if spec and spec.base_url else server_url(provider)

    async def _key(self, provider: str, entry: Entry | None, specs: list[ProviderSpec]) -> ModelAuth | None:
        if found := await self.auth.from_user(provider, entry):
            return found
        written = [spec.api_key for spec in reversed(specs) if spec.api_key]
        for value in written:
            if is_resolvable(value):
                return ModelAuth(await resolve_value(value))
        if found := self.auth.from_environment(self._info(provider).env):
            return found
        # This raises an error that names the reference that cannot be resolved.
        return ModelAuth(await resolve_value(written[0])) if written else None

    async def _headers(self, spec: ProviderSpec, model: Model) -> dict[str, str]:
        given = dict(spec.headers or {})
        given.update(next((item.headers for item in spec.models if item.id == model.id and item.headers), {}))
        change = spec.model_overrides.get(model.id)
        given.update(change.headers or {} if change else {})
        try:
            return {name: await resolve_value(value) for name, value in given.items()}
        except UnresolvedValue as error:
            problem = f'Failed to resolve a header for provider "{model.provider}" from {error}'
            raise MissingCredentials(problem) from None

    def _build(self, provider: str) -> list[Model]:
        catalog = load_catalog(provider, self._agent_dir)
        models = catalog.build(provider) if catalog else self._probed.get(provider, [])
        if needs := {f"{{{name}}}": self.auth.variable(provider, name) for name in self._info(provider).needs}:
            models = [replace(model, base_url=_filled(model.base_url, needs)) for model in models]
        if provider == LOCAL:
            from spindle.llm.local import local_models

            size, threads = self.local.context_size, self.local.threads
            models = local_models(self._agent_dir / "models", context_size=size, threads=threads)
        api, base_url = (catalog.api, catalog.base_url) if catalog else ("", "")
        if provider in LOOPBACK:
            api, base_url = "openai-completions", self._server(provider)
        if spec := self.file.providers.get(provider):
            models = merge_provider(models, provider, spec, api, base_url)
            api, base_url = spec.api or api, spec.base_url or base_url
        if spec := self._registered.get(provider):
            models = merge_provider([] if spec.models else models, provider, spec, api, base_url)
        return models


@cache
def _builtin_variables() -> frozenset[str]:
    """Return the variables that keys of built-in providers are read from, and our own."""
    names = (name for info in builtin_providers().values() for name in info.env if _is_secret(name))
    return frozenset([*_OURS, *names])


def _is_secret(variable: str) -> bool:
    return not variable.startswith(_SHARED_VARIABLES)


def _filled(url: str, values: Mapping[str, str | None]) -> str:
    for part, value in values.items():
        url = url.replace(part, value or part)
    return url
