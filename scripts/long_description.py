"""The long description of the package: README.md, without links that work only inside the repository.

If `[project.urls]` has a `Repository`, links and pictures lead there; otherwise they become plain text. Hatchling calls
this when it builds (`tool.hatch.metadata.hooks.custom` in pyproject.toml).
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class LongDescription(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        place = metadata.get("urls", {}).get("Repository")

        def absolute(match: re.Match[str]) -> str:
            if not place:
                return match[2]
            return f"{match[1]}[{match[2]}]({place}/{'raw' if match[1] else 'blob'}/main/{match[3]})"

        text = re.sub(r"(!?)\[([^\]]+)\]\((?![a-z]+:|#)([^)\s]+)\)", absolute, text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
