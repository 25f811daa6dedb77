"""Features of an agent that are hooks of its own."""

from typing import TYPE_CHECKING

from spindle.agent.hooks import Hooks

if TYPE_CHECKING:
    from spindle.agent.engine import Engine


def chosen_features(engine: "Engine") -> list[Hooks]:
    """Return the features that settings and session call for; the others are not loaded."""
    features: list[Hooks] = []
    if engine.settings.compaction.prune:
        from spindle.agent.features.pruning import Pruning

        features.append(Pruning(engine))
    if commands := engine.settings.checks_after_edit:
        from spindle.agent.features.edit_checks import EditChecks

        features.append(EditChecks(commands, engine))
    if engine.settings.read_before_write:
        from spindle.agent.features.unread_files import UnreadFiles

        features.append(UnreadFiles(engine))
    if engine.conversation.session.store is not None:
        from spindle.agent.features.uploads import Uploads

        features.append(Uploads(engine))
    return features
