"""Lists and calls the tools of `defib mcp` with the official SDK, against agents that are up.

client.py DEFIB: needs an agent `flap` that has crashed out and an agent `web` that runs.
client.py DEFIB sees | blind: inside of an agent that may look at its project, or that may not.
"""

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

LOOKS = ["list_agents", "status", "why", "logs", "history"]
ACTIONS = ["start", "stop", "restart", "revive"]


async def session_with(arguments, variables, use):
    env = {**os.environ, **variables}
    server = StdioServerParameters(command=sys.argv[1], args=["mcp", *arguments], env=env)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        hello = (await session.initialize()).model_dump(mode="json", by_alias=True)
        assert hello["serverInfo"]["name"] == "defib", hello
        return await use(session)


async def call(session, tool, **arguments):
    answer = await session.call_tool(tool, arguments)
    told = answer.model_dump(mode="json", by_alias=True)
    return told["isError"], told["content"][0]["text"], told.get("structuredContent")


async def names(session):
    return [tool.name for tool in (await session.list_tools()).tools]


async def looks(session):
    assert await names(session) == LOOKS
    failed, text, data = await call(session, "list_agents")
    assert not failed and "flap: crashed-out" in text, text
    assert {agent["name"] for agent in data["agents"]} == {"blind", "flap", "sees", "web"}, data
    failed, text, data = await call(session, "why", name="flap")
    assert not failed and "a limit tripped: 2 of 2 deaths" in text, text
    assert data["run"]["death"]["class"] == "error" and data["remedy"], data
    failed, text, _ = await call(session, "logs", name="flap", lines=1)
    assert not failed and text == "about to fail\n", text
    failed, _, data = await call(session, "history", name="flap", limit=1)
    assert not failed and len(data["runs"]) == 1 and data["runs"][0]["run"] == 2, data
    failed, _, data = await call(session, "status", name="web")
    assert not failed and data["agents"][0]["state"] == "running", data
    for tool, arguments in [
        ("why", {"name": "nobody"}),
        ("why", {}),
        ("logs", {"name": "flap", "lines": 0}),
        ("history", {"since": "yesterday"}),
        ("stop", {"name": "web"}),
    ]:
        failed, text, _ = await call(session, tool, **arguments)
        assert failed and text, (tool, arguments, text)
    _, text, _ = await call(session, "stop", name="web")
    assert "--allow-actions" in text, text


async def acts(session):
    assert await names(session) == LOOKS + ACTIONS
    failed, text, data = await call(session, "restart", name="web")
    assert not failed and data["agents"][0]["run"] == 2, text
    failed, text, _ = await call(session, "restart", name="flap")
    assert failed and "revive" in text, text
    failed, text, data = await call(session, "stop", name="web")
    assert not failed and data["agents"][0]["state"] == "stopped", text


LOOKED_AT = [
    ("why", {"name": "flap"}, "a limit tripped: 2 of 2 deaths"),
    ("logs", {"name": "flap"}, "about to fail"),
    ("history", {"name": "flap"}, "flap run 2: "),
    ("history", {}, "flap run 2: "),
    ("status", {"name": "flap"}, "flap: crashed-out"),
    ("list_agents", {}, "flap: crashed-out"),
]


async def sees(session):
    for tool, arguments, word in LOOKED_AT:
        failed, text, _ = await call(session, tool, **arguments)
        assert not failed and word in text, (tool, arguments, text)
    # It may look, and change nothing, whatever it was started with.
    failed, text, _ = await call(session, "stop", name="web")
    assert failed and "speak for itself alone" in text, text


async def blind(session):
    for tool, arguments, _ in LOOKED_AT:
        failed, text, _ = await call(session, tool, **arguments)
        assert failed and "speak for itself alone" in text, (tool, arguments, text)


async def main():
    match sys.argv[2:]:
        case []:
            await session_with([], {}, looks)
            await session_with(["--allow-actions"], {}, acts)
            print("the tools are listed and called")
        case ["sees"]:
            await session_with(["--allow-actions"], {}, sees)
            print("it sees what became of its siblings")
        case ["blind"]:
            await session_with([], {}, blind)
            print("it sees nothing")


asyncio.run(main())
