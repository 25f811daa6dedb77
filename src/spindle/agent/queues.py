"""Messages that wait for the agent: steering comes before the next model call, follow-ups when the run would end."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from spindle.agent.submission import Submission
from spindle.shapes.messages import CustomMessage, UserMessage, text_of

QueueMode = Literal["all", "one-at-a-time"]
Queued = UserMessage | CustomMessage


class MessageQueue(Struct):
    mode: QueueMode = "one-at-a-time"
    waiting: list[Queued] = field(default_factory=list)
    taken: list[Queued] = field(default_factory=list)
    """On their way into the conversation: still shown, but they cannot be cleared any more."""

    def __len__(self) -> int:
        return len(self.taken) + len(self.waiting)

    def put(self, message: Queued) -> None:
        self.waiting.append(message)

    def batch(self) -> list[Queued]:
        """Take what the next delivery holds. Each message is to be told of with `Queues.deliver`."""
        count = 1 if self.mode == "one-at-a-time" else len(self.waiting)
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        self.taken += batch
        return batch

    def delivered(self, message: Queued) -> None:
        self.taken[:] = [other for other in self.taken if other is not message]

    def put_back(self) -> None:
        """Let what was taken but not delivered wait again."""
        self.waiting[:0] = self.taken
        self.taken.clear()

    def clear(self) -> list[str]:
        """Empty the queue; return the texts that were waiting."""
        removed = _texts(self.waiting)
        self.waiting.clear()
        return removed

    def texts(self) -> list[str]:
        """Return the user's texts; messages of extensions are not shown."""
        return _texts([*self.taken, *self.waiting])


class Queues:
    """Both queues, and the one place that tells of every change."""

    def __init__(self, changed: Callable[[], None], steering_mode: QueueMode, follow_up_mode: QueueMode) -> None:
        self.steering = MessageQueue(steering_mode)
        self.follow_up = MessageQueue(follow_up_mode)
        self.prompted = False
        """Whether a prompt is among the follow-ups: it is delivered even if the run before it failed."""
        self._arriving: list[Submission] = []
        """Sent while the session changes, for the session it changes to."""
        self._changed = changed

    def __len__(self) -> int:
        return len(self.steering) + len(self.follow_up) + len(self._arriving)

    def put(self, message: Queued, behavior: str | None, *, prompt: bool = False) -> None:
        """Add a message: `steer`, else behind the run."""
        (self.steering if behavior == "steer" else self.follow_up).put(message)
        self.prompted = self.prompted or prompt
        self._changed()

    def deliver(self, message: Queued) -> None:
        """Let go of a message because it enters the conversation now."""
        self.steering.delivered(message)
        self.follow_up.delivered(message)
        self.prompted = self.prompted and len(self.follow_up) > 0
        self._changed()

    def put_back(self) -> None:
        self.steering.put_back()
        self.follow_up.put_back()

    def texts(self) -> tuple[list[str], list[str]]:
        """Return what waits, as the user wrote it: steering, and all the rest."""
        return self.steering.texts(), [*self.follow_up.texts(), *(item.text for item in self._arriving)]

    def clear(self) -> tuple[list[str], list[str]]:
        """Empty all; return the texts that were waiting."""
        removed = self.steering.clear(), [*self.follow_up.clear(), *(item.text for item in self._arriving)]
        self._arriving.clear()
        self.prompted = False
        self._changed()
        return removed

    def forget(self) -> None:
        """Empty both queues without an event: the session they belonged to is gone."""
        for queue in (self.steering, self.follow_up):
            queue.waiting.clear()
            queue.taken.clear()
        self.prompted = False

    # -- while the session changes ---------------------------------------------------------------

    def keep(self, submission: Submission) -> None:
        """Keep what was sent until the agent has arrived in the other session."""
        self._arriving.append(submission)
        self._changed()

    @property
    def starting(self) -> bool:
        """Whether a prompt is kept, which will start a run."""
        return any(item.is_prompt for item in self._arriving)

    def demote(self) -> None:
        """An abort: what is kept will wait in its queue, and start nothing by itself."""
        self._arriving = [replace(item, is_prompt=False) for item in self._arriving]

    def arrived(self) -> list[Submission]:
        """Return what was kept, to be looked at now."""
        arriving, self._arriving = self._arriving, []
        if arriving:
            self._changed()
        return arriving


def _texts(messages: list[Queued]) -> list[str]:
    return [text_of(message.content) for message in messages if isinstance(message, UserMessage)]
