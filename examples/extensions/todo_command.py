"""A slash command whose state lives in the session: `/todo add TEXT`, `/todo done ID`, `/todo list`, `/todo send`.

    spindle --mode rpc -e examples/extensions/todo_command.py

Entries of the session survive restarts and reloads, and every branch of the session has its own list.
"""


def extension(agent):
    agent.flag("todo-max", type=str, default="20", help="Most open items")

    def read(ctx):
        """Return the open items by id, and the next free id."""
        items, last = {}, 0
        for entry in ctx.session.branch():
            if entry.get("customType") != "todo":
                continue
            change = entry["data"]
            last = max(last, change["id"])
            if change["op"] == "add":
                items[change["id"]] = change["text"]
            else:
                items.pop(change["id"], None)
        return items, last + 1

    def show(ctx):
        items, _ = read(ctx)
        ctx.ui.set_status("todo", f"{len(items)} open" if items else None)

    @agent.on("session_start")
    def greet(event, ctx):
        show(ctx)

    @agent.command("todo", help="add TEXT | done ID | list | send")
    async def todo(args, ctx):
        verb, _, rest = args.strip().partition(" ")
        items, next_id = read(ctx)
        if verb == "add" and rest:
            if len(items) >= int(agent.get_flag("todo-max")):
                ctx.ui.notify("Too many open items", "error")
                return
            agent.append_entry("todo", {"op": "add", "id": next_id, "text": rest})
        elif verb == "done" and rest.isdecimal() and int(rest) in items:
            agent.append_entry("todo", {"op": "done", "id": int(rest)})
        elif verb == "list":
            ctx.ui.notify("\n".join(f"{id}. {text}" for id, text in items.items()) or "Nothing to do")
        elif verb == "send" and items:
            await ctx.wait_for_idle()
            await agent.send_user_message("Work through these items:\n" + "\n".join(f"- {t}" for t in items.values()))
        else:
            ctx.ui.notify("Usage: /todo add TEXT | done ID | list | send", "warning")
        show(ctx)

    @todo.complete
    def complete(prefix):
        return [verb for verb in ("add ", "done ", "list", "send") if verb.startswith(prefix)]
