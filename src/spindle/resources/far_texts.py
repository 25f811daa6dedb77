"""The texts of a project at the far side of a pipe: context files, skills and templates, read from their copies here.

Settings, extensions and MCP servers of the project there are not used: they would act here.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from spindle.base.settings import SettingsStore
from spindle.base.user_files import read_text
from spindle.resources.slash_commands import Skill, Template
from spindle.resources.sources import SourceInfo, Sources

if TYPE_CHECKING:
    from spindle.resources.loader import Resources


class FarTexts(Struct, frozen=True):
    mirror: str
    cwd: str

    @property
    def folder(self) -> Path:
        """The copy of the working directory."""
        return Path(f"{self.mirror}{self.cwd}")

    def sources(self, home: Path, store: SettingsStore) -> Sources:
        return Sources(home, self.folder, store, project_trusted=True)

    def take_in(self, resources: "Resources", home: Path) -> None:
        """Give the texts their paths at the far side. Texts from around the copies are left out."""
        files = [file for file in resources.context_files if self._is_copy(file.path) or file.path.parent == home]
        resources.context_files = [replace(file, path=self._there(file.path)) for file in files]
        resources.skills = [self._skill(skill) for skill in resources.skills]
        resources.templates = [self._moved(template) for template in resources.templates]

    def _skill(self, skill: Skill) -> Skill:
        if not self._is_copy(skill.path):
            return skill
        moved = replace(skill, text=read_text(skill.path), info=self._info(skill.info))
        return replace(moved, path=self._there(skill.path))

    def _moved(self, template: Template) -> Template:
        return replace(template, path=self._there(template.path), info=self._info(template.info))

    def _info(self, info: SourceInfo) -> SourceInfo:
        base = None if info.base_dir is None else str(self._there(Path(info.base_dir)))
        return replace(info, path=str(self._there(Path(info.path))), base_dir=base)

    def _is_copy(self, path: Path) -> bool:
        return path.is_relative_to(self.mirror)

    def _there(self, path: Path) -> Path:
        return Path("/") / path.relative_to(self.mirror) if self._is_copy(path) else path
