"""Messages that wait: steering is delivered before the next model call, follow-ups when the run would end.

The user's messages are kept beside the session file until they are in it, so that a kill loses none of them. A message
is identified by its timestamp: if it is in the session, it was delivered, whatever the file beside it says.
"""

from collections.abc import Callable, Container, Iterable
from typing import Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from spindle.agent import AgentError
from spindle.agent.run.handle import Run
from spindle.agent.run.options import Submission
from spindle.shapes.codec import DecodeError, decode
from spindle.shapes.events import QueuedItem
from spindle.shapes.messages import CustomMessage, Image, Text, UserMessage, Wire, text_of

NOT_BEGUN = "Aborted before it began; the message waits in its queue"
TAKEN_OUT = "Taken out of the queue"
QueueMode = Literal["all", "one-at-a-time"]
Queued = UserMessage | CustomMessage


class KeptMessage(Wire):
    """A message of the user that is not in the session file yet."""

    kind: str
    """`steer`; otherwise it is a follow-up."""
    message: UserMessage
    text: str | None = None
    """The text as it was sent, if hooks and templates have not been applied yet."""
    expand: bool = True
    source: str = "rpc"

    @classmethod
    def sent(cls, item: Submission) -> "KeptMessage":
        kind, message = item.behavior or "followUp", item.message(item.text, item.images)
        return cls(kind, message, item.text, item.expand, item.source)

    def submission(self) -> Submission:
        """Return the message as a submission that starts no run."""
        content = self.message.content if isinstance(self.message.content, list) else []
        return Submission(
            text=self.text or "",
            images=[block for block in content if isinstance(block, Image)],
            behavior=self.kind,
            source=self.source,
            expand=self.expand,
            ordered=content,
            is_prompt=False,
            timestamp=int(self.message.timestamp),
        )


class KeptQueues(Wire):
    """The content of the file beside a session file."""

    session_id: str
    waiting: list[KeptMessage]
    """Messages in the order in which they were sent."""
    prompted: bool = False

    @classmethod
    def read(cls, data: bytes | None, session_id: str) -> "KeptQueues | None":
        """Return the messages that were kept for a session; None if `data` is unreadable or of another session."""
        try:
            kept = msgspec.convert(decode(data or b"null"), cls)
        except (DecodeError, msgspec.ValidationError):
            return None
        return kept if kept.session_id == session_id else None


class MessageQueue(Struct):
    mode: QueueMode = "one-at-a-time"
    waiting: list[Queued] = field(default_factory=list)
    taken: list[Queued] = field(default_factory=list)
    """Messages on their way into the conversation: still shown, but they cannot be cleared any more."""

    def __len__(self) -> int:
        return len(self.taken) + len(self.waiting)

    def batch(self) -> list[Queued]:
        """Take the messages to deliver next. Call `Queues.deliver` for each of them."""
        count = 1 if self.mode == "one-at-a-time" else len(self.waiting)
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        self.taken += batch
        return batch

    def delivered(self, message: Queued) -> None:
        self.taken[:] = [other for other in self.taken if other is not message]

    def requeue(self) -> None:
        """Let messages wait again that were taken but not delivered."""
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
    """Both queues, and what waits for a prompt. Every change of the queues is saved and told here."""

    def __init__(
        self,
        tell: Callable[[], None],
        steering_mode: QueueMode,
        follow_up_mode: QueueMode,
        save: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell` tells clients of every change. Before that, `save` keeps the messages that wait."""
        self.steering = MessageQueue(steering_mode)
        self.follow_up = MessageQueue(follow_up_mode)
        self.with_next_prompt: list[CustomMessage] = []
        """Messages that go out with the next prompt."""
        self.prompted = False
        """Whether a prompt is among the follow-ups: it is delivered even if the run before it failed."""
        self._arriving: list[Submission] = []
        """Submissions that are held back until a change of session, an abort or the current run is over."""
        self._looked_at: list[Submission] = []
        """Accepted submissions that hooks look at before they are queued."""
        self.senders: dict[str, Run] = {}
        """Message id → the run of a queued prompt, for a sender that waits for its result."""
        self._entering: list[KeptMessage] = []
        """Messages that are not in a queue any more, and not in the session file yet."""
        self._tell = tell
        self.save = save

    def _changed(self) -> None:
        self.save()
        self._tell()

    def __len__(self) -> int:
        return len(self.steering) + len(self.follow_up) + len(self._arriving)

    @property
    def deliverable(self) -> bool:
        """Whether a message waits that the current run may deliver."""
        steering, follow_up = self.steering, self.follow_up
        return bool(steering.waiting or follow_up.waiting or steering.taken or follow_up.taken)

    def put(self, message: Queued, behavior: str | None, *, prompt: bool = False, sender: Run | None = None) -> None:
        """Add a message: to the steering queue for `steer`, else to the follow-ups. `sender` waits for its result."""
        if sender is not None and isinstance(message, UserMessage):
            self.senders[_id_of(message)] = sender
        (self.steering if behavior == "steer" else self.follow_up).waiting.append(message)
        self.prompted = self.prompted or prompt
        self._changed()

    def take_next_prompt(self) -> list[CustomMessage]:
        """Take the messages that go out with a prompt that is sent now."""
        waiting, self.with_next_prompt = self.with_next_prompt, []
        return waiting

    def deliver(self, message: Queued) -> None:
        """Take a message out of its queue, because it enters the conversation now."""
        if isinstance(message, UserMessage):
            is_steering = any(other is message for other in self.steering.taken)
            self._entering.append(KeptMessage("steer" if is_steering else "followUp", message))
            self.senders.pop(_id_of(message), None)
        self.steering.delivered(message)
        self.follow_up.delivered(message)
        self.prompted = self.prompted and len(self.follow_up) > 0
        self._changed()

    def requeue(self) -> None:
        """Put messages back into the queues that were taken but not delivered: the run is over."""
        self.steering.requeue()
        self.follow_up.requeue()
        self._entering.clear()
        self.save()

    def texts(self) -> tuple[list[str], list[str]]:
        """Return the user's texts that wait: steering, and all others."""
        return self.steering.texts(), [*self.follow_up.texts(), *(item.text for item in self._arriving)]

    def items(self) -> list[QueuedItem]:
        sent = map(KeptMessage.sent, self._arriving)
        return [
            QueuedItem(_id_of(kept.message), kept.kind, text_of(kept.message.content), _image_count(kept.message))
            for kept in (*self.in_queues(), *sent)
        ]

    def _find(self, id: str) -> tuple[str, MessageQueue, int, UserMessage]:
        for kind, queue in (("steer", self.steering), ("followUp", self.follow_up)):
            for index, message in enumerate(queue.waiting):
                if isinstance(message, UserMessage) and _id_of(message) == id:
                    return kind, queue, index, message
        raise AgentError("This message does not wait any more")

    def remove(self, id: str) -> tuple[str, UserMessage]:
        """Take one message out of its queue. Returns the queue's name and the message. Raises `AgentError`."""
        kind, queue, index, message = self._find(id)
        del queue.waiting[index]
        self._take_out(message)
        self.prompted = self.prompted and len(self.follow_up) > 0
        self._changed()
        return kind, message

    def take_back(self, message: CustomMessage) -> None:
        """Take a message of ours out of its queue, if it is still there."""
        if any(other is message for other in self.follow_up.waiting):
            self.follow_up.waiting[:] = [other for other in self.follow_up.waiting if other is not message]
            self._changed()

    def _take_out(self, message: Queued) -> None:
        if isinstance(message, UserMessage) and (sender := self.senders.pop(_id_of(message), None)) is not None:
            sender.refuse(TAKEN_OUT)

    def change(self, id: str, text: str) -> None:
        """Replace the text of a message that waits; its images stay. Raises `AgentError`."""
        _, queue, index, message = self._find(id)
        content = message.content if isinstance(message.content, list) else []
        images = [block for block in content if not isinstance(block, Text)]
        queue.waiting[index] = replace(message, content=[Text(text), *images])
        self._changed()

    def hurry(self, id: str) -> None:
        """Make a message the next to be delivered. Raises `AgentError`."""
        _, queue, index, message = self._find(id)
        del queue.waiting[index]
        self.steering.waiting.insert(0, message)
        self._changed()

    def clear(self) -> tuple[list[str], list[str]]:
        """Empty both queues, and drop submissions that are held back. Returns the texts of all of them."""
        for message in (*self.steering.waiting, *self.follow_up.waiting):
            self._take_out(message)
        removed = self.steering.clear(), [*self.follow_up.clear(), *(item.text for item in self._arriving)]
        _refuse(self._arriving, TAKEN_OUT)
        self._arriving.clear()
        self.prompted = False
        self._changed()
        return removed

    def forget(self) -> None:
        """Empty both queues without an event: the agent has left their session."""
        for queue in (self.steering, self.follow_up):
            queue.waiting.clear()
            queue.taken.clear()
        self.prompted = False

    # -- messages that a kill must not lose ------------------------------------------------------

    def accept(self, submission: Submission) -> None:
        """Keep a submission that was accepted but is not in a queue yet, until `let_go`."""
        self._looked_at.append(submission)
        self.save()

    def accept_start(self, submission: Submission) -> None:
        """Note a prompt that starts a run. Until it is stored or the run ends, each `save` keeps it."""
        self._entering.append(KeptMessage.sent(submission))

    def let_go(self, submission: Submission) -> None:
        """Forget a submission that hooks have looked at: it is in its queue now, or was dealt with."""
        self._looked_at = [other for other in self._looked_at if other is not submission]
        self.save()

    def stored(self, message: object) -> None:
        """Note that a message is in the session file. The file beside it is updated later."""
        if self._entering and isinstance(message, UserMessage):
            self._entering = [kept for kept in self._entering if kept.message.timestamp != message.timestamp]

    def in_queues(self) -> list[KeptMessage]:
        return [
            KeptMessage(kind, message)
            for kind, queue in (("steer", self.steering), ("followUp", self.follow_up))
            for message in (*queue.taken, *queue.waiting)
            if isinstance(message, UserMessage)
        ]

    def kept(self, session_id: str) -> KeptQueues:
        """Return all messages that must not be lost, in the order in which they were sent."""
        sent = map(KeptMessage.sent, (*self._looked_at, *self._arriving))
        return kept_queues(session_id, [*self._entering, *self.in_queues(), *sent], self.prompted)

    def offer(self, kept: KeptQueues, delivered: Container[float]) -> list[Submission]:
        """Put kept messages back into the queues, except those with the timestamps in `delivered`.

        Returns the submissions that hooks have yet to look at; call `let_go` for each.
        """
        unseen = []
        for item in kept.waiting:
            if item.message.timestamp in delivered:
                continue
            if item.text is None:
                (self.steering if item.kind == "steer" else self.follow_up).waiting.append(item.message)
            else:
                unseen.append(item.submission())
        self._looked_at += unseen
        self.prompted = self.prompted or (kept.prompted and len(self.follow_up) > 0)
        self._changed()
        return unseen

    # -- submissions that are held back ----------------------------------------------------------

    def keep(self, submission: Submission) -> None:
        """Hold a submission back until `arrived`."""
        self._arriving.append(submission)
        self._changed()

    @property
    def starting(self) -> bool:
        """Whether a prompt is held back, which will start a run."""
        return any(item.is_prompt for item in self._arriving)

    def demote(self) -> bool:
        """Let no prompt that is held back start a run, because of an abort. Returns whether there was one.

        They will wait in their queues.
        """
        starting = self.starting
        self._arriving = [replace(item, is_prompt=False) for item in _refuse(self._arriving, NOT_BEGUN)]
        return starting

    def withdraw(self, run: Run) -> None:
        """Take back a prompt that is held back, or that hooks look at."""
        self._arriving = [item for item in self._arriving if item.run is not run]
        self._looked_at = [item for item in self._looked_at if item.run is not run]
        run.refuse("The prompt was taken back")
        self._changed()

    def refuse(self, why: str) -> None:
        """Tell the senders of prompts that are held back, or that hooks look at, that these start no run after all."""
        self._arriving = _refuse(self._arriving, why)
        self._looked_at = _refuse(self._looked_at, why)

    def arrived(self) -> list[Submission]:
        """Return the submissions that were held back, to be accepted now. Call `save` afterwards."""
        arriving, self._arriving = self._arriving, []
        if arriving:
            self._tell()
        return arriving


def kept_queues(session_id: str, waiting: Iterable[KeptMessage], prompted: bool) -> KeptQueues:
    return KeptQueues(session_id, sorted(waiting, key=lambda kept: kept.message.timestamp), prompted)


def _refuse(held: Iterable[Submission], why: str) -> list[Submission]:
    """Tell the senders, and return the submissions without them."""
    held = list(held)
    for item in held:
        if item.run is not None:
            item.run.refuse(why)
    return [replace(item, run=None) for item in held]


def _id_of(message: UserMessage) -> str:
    return str(int(message.timestamp))


def _image_count(message: UserMessage) -> int:
    return sum(isinstance(block, Image) for block in message.content) if isinstance(message.content, list) else 0


def _texts(messages: list[Queued]) -> list[str]:
    return [text_of(message.content) for message in messages if isinstance(message, UserMessage)]
