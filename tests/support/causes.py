"""Why a model cannot answer, and what follows: is it asked again, and may another model answer?"""

from .mock_model import NOTHING, Step, call, cut, dropped, error, failure, reply, think

__all__ = ["LONG", "TABLE", "TRIES"]

BODY = {"code": "model_not_found", "message": "The model `first` does not exist"}
LONG = "This model's maximum context length is 100 tokens. Please reduce the length of the messages."
TRIES = 3
"""Of an answer that may be tried again, with `retry.maxRetries` 2."""
TABLE: list[tuple[str, Step, int, str | None]] = [
    # name, what the server of a model does, how often it is asked, cause (None: the run fails with it)
    ("400", failure(400, "temperature is wrong"), 1, None),
    ("400 no such model", failure(400, {"error": BODY}), 1, "model"),
    ("400 region", failure(400, "User location is not supported for the API use."), 1, "region"),
    ("401", failure(401, "bad key"), 1, "key"),
    ("402", failure(402, "pay first"), 1, "quota"),
    ("403", failure(403, "not allowed"), 1, "key"),
    ("404", failure(404, "what?"), 1, "model"),
    ("408", failure(408, "too slow"), TRIES, "timeout"),
    ("413", failure(413, "too big"), 1, "context"),
    ("429", failure(429, "slow down"), TRIES, "rate_limit"),
    ("429 with Retry-After", failure(429, "slow down", {"retry-after": "0"}), TRIES, "rate_limit"),
    ("429 with a long Retry-After", failure(429, "slow down", {"retry-after": "600"}), 1, "rate_limit"),
    ("429 without money", failure(429, "You have insufficient_quota"), 1, "quota"),
    ("500", failure(500, "oh"), TRIES, "server"),
    ("502", failure(502, "oh"), TRIES, "server"),
    ("503", failure(503, "oh"), TRIES, "overload"),
    ("529", failure(529, "oh"), TRIES, "overload"),
    ("hung up", dropped(), 1, "connection"),
    ("cut before the first delta", reply(cut()), TRIES, "server"),
    ("cut after the first delta", reply("half of ", cut()), TRIES, "broken"),
    ("cut in a thought", reply(think("hm"), cut()), TRIES, "broken"),
    ("cut in a call", reply(call("bash", ['{"command": "touch hit'], id="c"), cut(), finish=NOTHING), TRIES, "broken"),
    ("no finish reason", reply("half of it", finish=NOTHING), TRIES, "broken"),
    ("an error in the answer", reply("half", error({"message": "overloaded"})), TRIES, "broken"),
    ("overflow", failure(400, LONG), 1, "context"),
    ("length", reply("cut off", finish="length"), 1, None),
    ("refusal", reply("", finish="content_filter"), 1, None),
    ("refusal after words", reply("I would", finish="content_filter"), 1, None),
    ("refused request", failure(400, {"error": {"code": "content_filter", "message": "policy"}}), 1, None),
    ("empty answer", reply(""), 2, None),
]
