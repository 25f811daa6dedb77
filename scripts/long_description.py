"""The long description of the package: README.md, with links that work away from the repository.

Hatchling calls this when it builds (`tool.hatch.metadata.hooks.custom` in pyproject.toml).
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class LongDescription(MetadataHookInterface):
    def update(self, metadata):
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        place = f"{metadata['urls']['Repository']}/blob/main/"
        text = re.sub(r"\]\((?![a-z]+:|#)([^)\s]+)\)", rf"]({place}\1)", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
