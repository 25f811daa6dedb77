"""Signed statements (JWT) for logins: who we are, and that a token is ours. PyJWT is imported only here."""

import hashlib
import time
import uuid
from base64 import urlsafe_b64encode
from typing import Any, Final

from spindle.plugins.mcp import McpError

try:
    import jwt
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
except ImportError:
    from spindle.base.installation import extra_command

    raise McpError(f"its login takes signed statements, which need PyJWT: {extra_command('jwt')}") from None

_SECONDS: Final = 300
"""How long a statement about us is valid."""


def assertion(client_id: str, audience: str, key: str, supported: list[str] | None) -> str:
    """Return the statement that proves our identity (RFC 7523), signed with the private key of the client.

    `supported`: algorithms that the authorization server can verify. Raises `McpError`.
    """
    try:
        private: Any = serialization.load_pem_private_key(key.encode(), None)
    except (ValueError, TypeError):
        raise McpError('"privateKey" of "oauth" is not a private key in PEM form, or it has a password') from None
    names = _algorithms(private)
    algorithm = next((name for name in names if supported is None or name in supported), None)
    if algorithm is None:
        raise McpError(
            f'its authorization server takes no signature of "privateKey", only {", ".join(supported or ())}'
        )
    now = int(time.time())
    claims = {"iss": client_id, "sub": client_id, "aud": audience, "jti": str(uuid.uuid4()), "iat": now}
    return jwt.encode(claims | {"exp": now + _SECONDS}, private, algorithm)


def _algorithms(key: Any) -> tuple[str, ...]:
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return ({"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}.get(key.curve.name, "ES256"),)
    if isinstance(key, rsa.RSAPrivateKey):
        return ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512")
    return ("EdDSA",) if isinstance(key, ed25519.Ed25519PrivateKey) else ()


def new_key() -> str:
    """Return a private key for `proof`, as text."""
    private = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8
    return private.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def proof(key: str, method: str, url: str, token: str | None = None, nonce: str | None = None) -> str:
    """Return the statement that the sender of a request holds the key its token is bound to (DPoP, RFC 9449)."""
    private = serialization.load_pem_private_key(key.encode(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    public = jwt.algorithms.ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    claims: dict[str, Any] = {"jti": str(uuid.uuid4()), "htm": method, "iat": int(time.time())}
    claims["htu"] = url.partition("#")[0].partition("?")[0]
    if token is not None:
        claims["ath"] = urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).decode().rstrip("=")
    if nonce is not None:
        claims["nonce"] = nonce
    return jwt.encode(claims, private, "ES256", {"typ": "dpop+jwt", "jwk": public})
