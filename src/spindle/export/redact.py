"""Take out text that looks like a key, a token or a password.

Works on values, not on JSON text, so that nothing around a secret can break. Entry ids, links between calls and
results, and the bytes of images stay as they are.
"""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "‹redacted›"

# Every pattern starts at a fixed text or class and has no nested repeats, so hostile text cannot make it slow.
_START = r"(?<![A-Za-z0-9_-])"
# Of a key that was cut off: its first line, and the lines after it that look like a part of a key.
_KEY_BEGIN = re.compile(
    r"-----BEGIN [A-Z0-9 ]{1,60}-----"
    r"(?:\s|\\[nr]|(?:Proc-Type|DEK-Info|Version|Comment): [^\n]{0,200}|[A-Za-z0-9+/=]{20,})*"
)
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{1,60}-----")
_KEY_LENGTH = 20_000
# How keys of known services begin: a word and an underscore, a hyphen or a dot, or letters of their own.
_VENDOR = (
    r"(?:whsec|gh[a-z]|github_pat|glsa|glc|gsk|lsv2|pcsk|do[a-z]_v1|shp[a-z]{2}|lin_(?:api|oauth)|figd|sntry[a-z]"
    r"|pscale_tkn|sb_secret|fm2|dckr_pat|rubygems|CLOJARS|[rs]k_(?:live|prod|test)|(?:duffel|shippo)_(?:live|test)"
    r"|rdme|sgp|pnu|nfp|apify_api|tfp|phx|vc[kp])_"
    r"|(?:sk|gl(?:agent|cbt|dt|ft|imt|oas|pat|ptt|rt|soat)|(?:xoxe\.)?xox[a-z]|xapp|xwfp|GOCSPX|xai|pplx|nvapi|csk|tvly"
    r"|HRKU|NR[A-Z]{2}|PMAK|sq0[a-z]{3}|tskey|xkeysib|xsmtpsib|CFPAT|FLWSECK(?:_TEST)?|pul|ico|fio-u|pat-[a-z]{2}1"
    r"|bedrock-api-key)-"
    r"|(?:ya29|hv[a-z]|dp\.(?:audit|ct|pt|sa|scim|st)|dt0[a-z]01)\."
    r"|AIza|1//0|AT[A-Z]TT3|ATBB|AGE-SECRET-KEY-1|GR1348941|EAACEdEose0cBA|EZ[A-Z]K|LTAI|AKCp|ops_eyJ|pypi-AgE"
)
# These begin like ordinary names; the rest of such a key has no hyphen or underscore in it.
_WORDLIKE = r"(?:hf|npm|re|api_org|r8|fw|ntn|sbp|secret)_|key-"
_KEY = re.compile(
    rf"{_START}(?:(?:{_VENDOR})(?=[A-Za-z_-]{{0,200}}[0-9])[A-Za-z0-9_-]{{16,}}"
    rf"|(?:{_WORDLIKE})(?=[A-Za-z]{{0,200}}[0-9])[A-Za-z0-9]{{20,}}(?![A-Za-z0-9_-])"
    r"|eyJrIjoi[A-Za-z0-9]{50,}={0,2}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r"|A[KS]IA[0-9A-Z]{16}(?![A-Za-z0-9])"
    r"|SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}"
    r"|(?:SK|dapi|AC[0-9a-f]{32}:)[0-9a-f]{32}(?![A-Za-z0-9])"
    r"|(?:bot)?[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}"
    r"|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}"
    r"|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}"
    r"|[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,})"
    r"|(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"
    r"|\$(?:2[aby]\$[0-9]{2}|apr1|5|6|y)\$[./A-Za-z0-9$]{20,}"
)

# From here on the name of the secret stays and the rest is replaced. A quote may be escaped: JSON inside of text.
_ASSIGN = r"\\?[\"']?\s{0,4}(?::=|=>|[:=])\s{0,4}"
_QUOTE = r"\\?[\"']?"
_HEADER = re.compile(
    rf"(?i)((?:authorization|x-[a-z-]{{0,30}}(?:key|token|secret|auth)|api-key){_ASSIGN}{_QUOTE})"
    r"((?:bearer|basic|token|digest)\s{1,4})?([^\s\"',;\\‹$<{][^\s\"',;\\‹]{5,})"
)
_BEARER = re.compile(r"(?i)(?<![A-Za-z])(bearer\s{1,4})(?=[A-Za-z._~+/=-]{0,200}[0-9])[A-Za-z0-9._~+/=-]{12,}")
_COOKIE = re.compile(r"(?i)(cookie\s{0,4}:\s{0,4})[^\s=;‹]{1,100}=[^\r\n\"'‹]{4,}")
_URL_PASSWORD = re.compile(r"(?<=://)([^\s/:@\"'<>]{0,64}:)[^\s/@\"'<>]{1,256}(?=@)")
_URL_QUERY = re.compile(
    r"(?i)([?&](?:[a-z]{0,10}_?token|api_?key|sig|signature|[a-z]{0,10}_?secret|password|pwd)=)[^\s&#\"'<>‹${]{6,}"
)
_WEBHOOK = re.compile(
    r"(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/|hooks\.zapier\.com/hooks/catch/"
    r"|webhook\.office\.com/webhookb2/|outlook\.office\.com/webhook/|api\.telegram\.org/(?:file/)?bot)"
    r"[A-Za-z0-9/:@_-]{12,}"
)
# Programs that take a password after an option that means other things elsewhere.
_WORD = r"(?:(?P<quote>[\"'])(?![$<{‹*])[^\"'\n‹]{3,200}|(?![$<{‹*\"'-])[^\s\"'`;|&‹]{3,})"
_PROGRAM_OPTION = re.compile(
    r"((?:\bsshpass\s{1,4}-p\s{0,4}"
    r"|\b(?:mysql|mariadb)[a-z-]{0,12}\b[^\n|;&]{0,200}?\s-p(?=\S)"
    r"|\bmongo[a-z]{0,10}\b[^\n|;&]{0,200}?\s-p\s{1,4}"
    r"|\bredis-cli\b[^\n|;&]{0,200}?\s-a\s{1,4}"
    r"|\b(?:docker|podman|az|oc|helm|skopeo)\b[^\n|;&]{0,60}\blogin\b[^\n|;&]{0,200}?\s-p\s{1,4}"
    r"|\bhtpasswd\s{1,4}-[A-Za-z]{0,6}b[A-Za-z]{0,6}\s{1,4}\S{1,200}\s{1,4}\S{1,64}\s{1,4}"
    r"|\s-pass(?:in|out)?\s{1,4}pass:"
    r"|--from-literal[ =][A-Za-z0-9_.-]{1,100}=))" + _WORD
)
# host:port:database:user:password
_PGPASS = re.compile(
    r"(?m)^(\s{0,8}(?:\d{1,6}[:\t ]\s{0,4})?[\w.*-]{1,100}:(?:54\d\d|6432|\*):(?!\d+:)[^\s:]{1,64}:[^\s:]{1,64}:)"
    r"[^\s:‹]{3,}$"
)
_K8S_SECRET = re.compile(r"(?:^|\n)[\s-]{0,20}kind:\s{0,4}[\"']?Secret\b|\"kind\":\s{0,4}\"Secret\"")
_K8S_YAML = re.compile(
    r"(?m)^([ \t-]{0,40}(?:data|stringData):[ \t]*\n)((?:[ \t]{1,40}[\w.-]{1,100}:[^\n]*(?:\n|\Z)){1,200})"
)
_K8S_JSON = re.compile(r"(\"(?:data|stringData)\":\s{0,4}\{)([^{}]{1,20000})")
_LOGIN = re.compile(
    r"((?:\s-u|--user|\blogin\s{1,8}\S{1,64}\s{1,8}password)[ =]\s{0,4}(?!\d+:\d+\b))"
    r"([^\s:]{0,64}:)?([^\s‹$<]{4,})"
)
_FLAG = re.compile(
    r"(--?[a-z-]{0,20}(?:password|passwd|token|secret|api-?key)([ =])[\"']?)(?![$<{‹*-])([^\s\"'`;|&‹]{4,})"
)
_SHOUTED = re.compile(
    r"((?:(?:(?<![A-Za-z])|(?<=API))KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)"
    r"(?:_(?:[0-9]{1,3}|PROD|DEV|TEST|STAGING|LIVE|BASE64))?=[\"']?)(?![$<‹{])[^\s\"'`,;&|)‹]{6,}"
)
_PASSWORD = re.compile(
    rf"(?i)((?:password|passwd|passphrase|pwd|secret)(?:[_-]?(?:key|value))?{_ASSIGN})({_QUOTE})"
    r"([^\s\"'`,;&|(){}\[\]<>‹$*%\\/~][^\s\"'`,;&|(){}\[\]<>‹\\]{3,})(?=[\s\"'`,;&|)}\]<\\]|$)"
)
_ASSIGNED = re.compile(
    rf"(?i)((?:key|token|secret|password|credential|auth)[a-z0-9_-]{{0,20}}{_ASSIGN}{_QUOTE})([A-Za-z0-9+/_=.~-]{{16,}})"
)
_SECRET_KEY = re.compile(
    r"(?i)(?:api|access|private|secret|auth)[_-]?(?:key|token)|secret|password|passwd|passphrase"
    r"|(?:refresh|id|bearer)[_-]?token|authorization|credential"
)
_RUN = re.compile(r"(?=[0-9]{0,200}[A-Za-z])(?=[A-Za-z]{0,200}[0-9])[A-Za-z0-9]{16,}")
_TURN = re.compile(r"[A-Za-z][0-9]|[0-9][A-Za-z]")

_PROGRAM_WORDS = ("sshpass", "mysql", "mariadb", "mongo", "redis-cli", "login", "htpasswd", "-pass", "--from-literal")

_STRUCTURE = ("type", "id", "parentId", "targetId", "fromId", "firstKeptEntryId", "timestamp")
# Characters of the shortest text with a key in it, and of the shortest that names a secret.
_SHORTEST_KEY, _SHORTEST = 19, 8


def redact_text(text: str) -> str:
    """Return `text` without the parts that look like secrets."""
    if len(text) >= _SHORTEST_KEY:
        text = _redact_keys(text)
    if " -u " in text or "--" in text or "login" in text:
        text = _LOGIN.sub(_keep_user, text)
        text = _FLAG.sub(_keep_flag, text)
    if any(word in text for word in _PROGRAM_WORDS):
        text = _PROGRAM_OPTION.sub(_keep_quoted, text)
    if "Secret" in text and _K8S_SECRET.search(text):
        text = _K8S_YAML.sub(_keep_yaml_names, text)
        text = _K8S_JSON.sub(_keep_json_names, text)
    if len(text) >= _SHORTEST and (":" in text or "=" in text):
        text = _redact_named(text)
    return _BEARER.sub(_keep_name, text) if "earer" in text else text


def _redact_keys(text: str) -> str:
    """Take out text that looks like a key by itself."""
    text = _KEY.sub(REDACTED, text)
    if "-----BEGIN " in text:
        text = _redact_key_files(text)
    return text


def _redact_key_files(text: str) -> str:
    """Take out all text from the first to the last line of a key, also if a tool put something before its lines."""
    parts: list[str] = []
    at = 0
    end = _KEY_END.search(text)
    while (begin := _KEY_BEGIN.search(text, at)) is not None:
        while end is not None and end.start() < begin.start():
            end = _KEY_END.search(text, end.end())
        parts += [text[at : begin.start()], REDACTED]
        at = begin.end()
        if end is not None and end.end() - begin.start() <= _KEY_LENGTH:
            at = end.end()
    return "".join([*parts, text[at:]])


def _redact_named(text: str) -> str:
    """Take out values that a name, a header or an address marks as secret."""
    lowered = text.lower()
    if "authorization" in lowered or "x-" in lowered or "api-key" in lowered:
        text = _HEADER.sub(_keep_scheme, text)
    if "cookie" in lowered:
        text = _COOKIE.sub(_keep_name, text)
    if "://" in text:
        text = _URL_PASSWORD.sub(_keep_name, text)
        text = _WEBHOOK.sub(_keep_name, text)
    if ":5" in text or ":6432:" in text or ":*:" in text:
        text = _PGPASS.sub(_keep_name, text)
    if "=" in text:
        text = _URL_QUERY.sub(_keep_name, text)
        text = _SHOUTED.sub(_keep_name, text)
    if any(word in lowered for word in ("passw", "passphrase", "pwd", "secret")):
        text = _PASSWORD.sub(_keep_unless_word, text)
    if any(word in lowered for word in ("key", "token", "secret", "password", "credential", "auth")):
        text = _ASSIGNED.sub(_keep_unless_plain, text)
    return text


def redact_value(value: Any) -> Any:
    """Return a copy of a JSON value with every string in it redacted, keys included. Depth has no limit."""
    root: list[Any] = [None]
    # Work still to do: a value, and where its copy goes.
    waiting: list[tuple[Any, Any, Any]] = [(value, root, 0)]
    while waiting:
        item, place, at = waiting.pop()
        if isinstance(item, str):
            place[at] = redact_text(item)
        elif isinstance(item, dict):
            place[at] = copy = {}
            is_image = item.get("type") == "image"
            is_secret = item.get("kind") == "Secret"
            for key, inner in item.items():
                name = redact_text(key)
                copy[name] = inner
                if is_image and key == "data":
                    continue
                if is_secret and key in ("data", "stringData") and isinstance(inner, dict):
                    copy[name] = dict.fromkeys(inner, REDACTED)
                elif isinstance(inner, str) and len(inner) >= 4 and _SECRET_KEY.search(key):
                    copy[name] = REDACTED
                else:
                    waiting.append((inner, copy, name))
        elif isinstance(item, list):
            place[at] = items = list(item)
            waiting.extend((inner, items, index) for index, inner in enumerate(item))
        else:
            place[at] = item
    return root[0]


def redact_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a redacted copy of a session entry (or header) that still fits into its tree."""
    copy: dict[str, Any] = redact_value(dict(entry))
    _restore(entry, copy, _STRUCTURE)
    message, message_copy = entry.get("message"), copy.get("message")
    if isinstance(message, dict) and isinstance(message_copy, dict):
        _restore(message, message_copy, ("role", "toolCallId", "toolName"))
        blocks, block_copies = message.get("content"), message_copy.get("content")
        if isinstance(blocks, list) and isinstance(block_copies, list):
            for block, block_copy in zip(blocks, block_copies, strict=True):
                if isinstance(block, dict) and block.get("type") == "toolCall":
                    _restore(block, block_copy, ("id", "name"))
    return copy


def _restore(source: Mapping[str, Any], target: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in source:
            target[key] = source[key]


def _keep_name(match: "re.Match[str]") -> str:
    return match[1] + REDACTED


def _keep_quoted(match: "re.Match[str]") -> str:
    return f"{match[1]}{match['quote'] or ''}{REDACTED}"


def _keep_yaml_names(match: "re.Match[str]") -> str:
    return match[1] + re.sub(r"(?m)^([ \t]+[\w.-]+:)[ \t]*\S.*$", rf"\1 {REDACTED}", match[2])


def _keep_json_names(match: "re.Match[str]") -> str:
    return match[1] + re.sub(r'(:\s{0,4})"[^"\\]*"', rf'\1"{REDACTED}"', match[2])


def _keep_user(match: "re.Match[str]") -> str:
    """Replace the password after a user; a user alone is not secret."""
    if match[2] is None and "password" not in match[1]:
        return match[0]
    return f"{match[1]}{match[2] or ''}{REDACTED}"


def _keep_flag(match: "re.Match[str]") -> str:
    """Replace the value of an option; but not a plain word, which may belong to a sentence about the option."""
    return match[1] + REDACTED if match[2] == "=" or _has_digit(match[3]) else match[0]


def _keep_scheme(match: "re.Match[str]") -> str:
    """Replace the value of a header; a word without digits and scheme is only a remark about the header."""
    return f"{match[1]}{match[2] or ''}{REDACTED}" if match[2] or _has_digit(match[3]) else match[0]


def _keep_unless_word(match: "re.Match[str]") -> str:
    """Replace the value of a password, if it is in quotes, or does not look like the name of a type or variable."""
    name, quote, value = match.groups()
    secret = len(value) >= 6 if quote else not value.replace("_", "").replace(".", "").replace("-", "").isalpha()
    return f"{name}{quote}{REDACTED}" if secret else match[0]


def _keep_unless_plain(match: "re.Match[str]") -> str:
    """Replace a long value only if it looks random: names of functions, files and settings stay readable."""
    value = match[2]
    mixed = _has_digit(value) and value != value.lower() and value != value.upper()
    random = mixed or _RUN.search(value) is not None or len(_TURN.findall(value)) >= 3
    return match[1] + REDACTED if random else match[0]


def _has_digit(text: str) -> bool:
    return any("0" <= c <= "9" for c in text)
