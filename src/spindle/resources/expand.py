"""`/skill:name args` and `/template args` at the start of a message become the text they stand for."""

import re
from collections.abc import Sequence

from spindle.resources.skills import Skill
from spindle.resources.templates import Template, split_arguments, substitute

__all__ = ["expand_input", "expand_skill", "expand_template"]

_COMMAND = r"(?s)/(\S+)(?:\s+(.*))?"


def expand_input(text: str, skills: Sequence[Skill], templates: Sequence[Template]) -> str:
    """Return the message with a skill or template in place; unknown names are left as they are.

    Raises `OSError` if a skill cannot be read.
    """
    if not text.startswith("/"):
        return text
    return expand_template(expand_skill(text, skills), templates)


def expand_skill(text: str, skills: Sequence[Skill]) -> str:
    match = re.fullmatch(_COMMAND, text)
    if not match or not match[1].startswith("skill:"):
        return text
    skill = next((skill for skill in skills if skill.name == match[1][6:]), None)
    if skill is None:
        return text
    block = (
        f'<skill name="{skill.name}" location="{skill.path}">\n'
        f"References are relative to {skill.base_dir}.\n\n{skill.body()}\n</skill>"
    )
    arguments = (match[2] or "").strip()
    return f"{block}\n\n{arguments}" if arguments else block


def expand_template(text: str, templates: Sequence[Template]) -> str:
    match = re.fullmatch(_COMMAND, text)
    template = next((item for item in templates if match and item.name == match[1]), None)
    if match is None or template is None:
        return text
    return substitute(template.content, split_arguments(match[2] or ""))
