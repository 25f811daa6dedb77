"""Says whether a text ends by announcing work: "I will now fix it".

Only the last sentence counts, and it must say nothing else: a plan, a promise for later, a condition, or a step of an
explanation is none. Where the user wants words, such as a plan or a translation, nothing is an announcement.
"""

import re

_DEEDS = (
    "add|apply|build|change|check|continue|correct|create|delete|dig|do (?:it|so|that|this)|edit|examine|execute|"
    "explore|find|fix|help|implement|inspect|install|investigate|list|look|make|modify|move|open|proceed|read|refactor|"
    "remove|rename|replace|rewrite|run|search|start|take a|test|try|update|use|verify|write"
)
_ANNOUNCED = re.compile(
    r"(?:(?:(?:now|next|next step|first|then|so|okay|ok|great|alright|sure|certainly)[,.!:]?|"
    r"(?:(?:in order )?to|now that|since|based on) [^,]{1,80},) +)*"
    r"(?:(?:I|(?<=now )we|(?<=now, )we|(?<=next, )we)(?: will|'ll| am(?: now)? going to|'m(?: now)? going to)|"
    r"we(?: will|'ll) now|(?:I|(?<=now )we|(?<=first, )we|(?<=next, )we) need to|let me|let's|let us) "
    r"(?:(?:now|first|next|then|also|go ahead and|try to|proceed to|start to|begin to) )*"
    rf"(?:{_DEEDS}|(?:start|begin|proceed) (?:by|with) \w+ing)\b",
    re.IGNORECASE,
)
_ANNOUNCED_ELSEWHERE = re.compile(
    r"ich (?:werde|muss) (?:jetzt|nun|zuerst|zunächst|als nächstes)\b|(?:jetzt|nun|zuerst|zunächst|als nächstes) "
    r"(?:werde|muss) ich\b|je vais (?:maintenant|d'abord|ensuite)\b|(?:maintenant|d'abord|ensuite),? je vais\b|"
    r"(?:ahora|primero|a continuación),? voy a\b|(?:agora|primeiro),? vou\b|"
    r"(?:现在|接下来|首先|下一步)[,，]?(?:我们?(?:将|会|来|要)|让我)|我(?:将|会|要)(?:现在|首先|先|接下来)|"
    r"我(?:现在|首先|先|接下来)(?:将|会|来|要)|让我们?先?(?:看|检查|修|运行|读)",
    re.IGNORECASE,
)
"""Other languages, only with a word for now: without it such a sentence may say what holds in general."""
_NOT_NOW = re.compile(
    r"\b(?:if|once|when|whenever|unless|as soon as|after|before) (?:you|we|I)\b|\b(?:tomorrow|later|soon|tonight|this "
    r"afternoon|next (?:time|week|month|release|version)|from now on|in (?:the )?future|going forward|always|never|"
    r"(?:each|every) (?:time|morning|day|week|change|commit|run|answer)|follow-up|no (?:further )?changes?|nicht|"
    r"keine?|wenn|falls|sobald|quand|cuando|quando)\b|\bsi |如果|不",
    re.IGNORECASE,
)
_MORE = re.compile(r":\s+(?=\S)")
_AFTER = re.compile(r"(?:this|that|it|these|after that|afterwards|finally|then)\b.*(?:\bwill\b|'ll\b|\bshould\b)", re.I)
"""A sentence behind an announcement that says what it is for."""
_BEGIN = r"(?:^|(?<=[.!?:;,\n] )|(?<=[.!?:;,\n])|(?<=please )|(?<=and )|(?<=then ))"
_WORDS_WANTED = re.compile(
    r"\b(?:translat\w+|übersetz\w*|tradu\w+|würdest|ferais|harías|(?:act|answer|reply|respond|speak) as|haiku|poem|"
    r"lyrics|song|(?:what|how) (?:would|will|are|should|could|do|can) (?:you|I|we)|how to|"
    r"who are you|introduce|convert|tense|first person|(?:answer|reply|respond)[\w ]{0,20} with|which steps|"
    r"what'?s? (?:is )?(?:the )?next|from now on|verbatim|"
    r"(?:a|the|einen|den|un|une|le|um|o) (?:\w+ )?(?:plan|proposal|translation|outline|vorschlag|propuesta|plano)|"
    r"(?:do not|don't|without) (?:chang|edit|do|touch|run|writ)\w* (?:it|anything|(?:any )?files?)|change nothing)\b|"
    rf"{_BEGIN}(?:say|echo|repeat|quote|outline|plane?|remember|pretend|rephrase|paraphrase|always|never)\b|"
    r"\b(?:write|draft|compose|generate|prepare|give|suggest|propose|phrase|complete|finish|schreibe?|entwirf|écris|"
    r"escribe|escreva)\b[^.\n]{0,60}\b(?:e-?mails?|mail|messages?|reply|replies|letter|story|dialogue|sentences?|"
    r"paragraph|tweet|post|speech|tips?|steps|nachricht|brief|satz|geschichte|lettre|phrase|carta)\b|"
    r"翻译|翻譯|翻訳|计划|計劃|計画|方案|怎么|如何",
    re.IGNORECASE,
)
"""The user asks for words, which may be about what comes next."""
_INTO_A_FILE = re.compile(r"\b(?:in|into|to) [\w./-]+\.\w", re.IGNORECASE)
_MOST_LETTERS = 400
_END = 4000
"""Letters at the end of an answer that are looked at."""
_MOST_ASKED = 20_000
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LISTED = re.compile(r"(?:[-*+•>|#]|\d+[.)])\s")
_SENTENCES = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")


def is_announcement(text: str, asked: str) -> bool:
    """Say whether a last answer announces work. `asked`: the user's message that it answers."""
    *before, last = ["", *_lines(text)]
    if _LISTED.match(last) or (before and before[-1].endswith(":")):  # an item, or what the line before introduces
        return False
    sentences = [sentence for sentence in _SENTENCES.split(last) if sentence]
    if len(sentences) > 1 and _AFTER.match(sentences[-1]):
        sentences.pop()
    return bool(sentences) and _announces(sentences[-1]) and not _wants_words(asked[:_MOST_ASKED])


def _wants_words(asked: str) -> bool:
    """Say whether the user wants a text, and not in a file."""
    return _WORDS_WANTED.search(asked) is not None and _INTO_A_FILE.search(asked) is None


def _announces(sentence: str) -> bool:
    if len(sentence) > _MOST_LETTERS or sentence.endswith(("?", "？")):
        return False
    found = _ANNOUNCED.match(sentence) or _ANNOUNCED_ELSEWHERE.match(sentence)
    if found is None or _NOT_NOW.search(sentence, found.end()):
        return False
    more = _MORE.search(sentence, found.end())
    return more is None or _announces(sentence[more.end() :])


def _lines(text: str) -> list[str]:
    """Return the last lines of a text, without code at its end. One that goes on from the one before is part of it."""
    lines: list[str] = []
    open_line = False
    plain = _FENCE.sub("\n\n```\n\n", text.replace("’", "'").replace("**", ""))
    for line in plain.rstrip("`\n ")[-_END:].split("\n"):
        line = line.strip()
        if line and open_line and not _LISTED.match(line):
            lines[-1] += f" {line}"
        elif line:
            lines.append(line)
        open_line = bool(line) and not line.endswith((".", "!", "?", ":", ";", "。", "！", "？"))
    return lines
