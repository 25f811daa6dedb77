"""Messages that wait for the agent: steering comes before the next model call, follow-ups when the run would end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from spindle.types.content import text_of
from spindle.types.messages import CustomMessage, UserMessage

__all__ = ["MessageQueue", "QueueMode", "Queues"]

QueueMode = Literal["all", "one-at-a-time"]
Queued = UserMessage | CustomMessage


@dataclass
class MessageQueue:
    mode: QueueMode = "one-at-a-time"
    waiting: list[Queued] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.waiting)

    def put(self, message: Queued) -> None:
        self.waiting.append(message)

    def batch(self) -> list[Queued]:
        """Return what the next delivery holds; each message leaves the queue when it is delivered."""
        return self.waiting[:1] if self.mode == "one-at-a-time" else self.waiting[:]

    def remove(self, message: Queued) -> None:
        self.waiting[:] = [other for other in self.waiting if other is not message]

    def texts(self) -> list[str]:
        """Return the user's texts; messages of extensions are not shown."""
        return [text_of(message.content) for message in self.waiting if isinstance(message, UserMessage)]


class Queues:
    """Both queues, and the one place that tells of every change."""

    def __init__(self, changed: Callable[[], None], steering_mode: QueueMode, follow_up_mode: QueueMode) -> None:
        self.steering = MessageQueue(steering_mode)
        self.follow_up = MessageQueue(follow_up_mode)
        self._changed = changed

    def __len__(self) -> int:
        return len(self.steering) + len(self.follow_up)

    def steer(self, message: Queued) -> None:
        self.steering.put(message)
        self._changed()

    def follow(self, message: Queued) -> None:
        self.follow_up.put(message)
        self._changed()

    def deliver(self, message: Queued) -> None:
        """Take a message out because it enters the conversation now."""
        self.steering.remove(message)
        self.follow_up.remove(message)
        self._changed()

    def clear(self) -> tuple[list[str], list[str]]:
        """Empty both; return the texts that were waiting."""
        removed = self.steering.texts(), self.follow_up.texts()
        self.steering.waiting.clear()
        self.follow_up.waiting.clear()
        self._changed()
        return removed

    def forget(self) -> None:
        """Empty both without a word: the session they belonged to is gone."""
        self.steering.waiting.clear()
        self.follow_up.waiting.clear()
