"""Lists and calls the tools of `defib mcp` with the official SDK, against agents that are up.

client.py DEFIB: needs an agent `flap` that has crashed out, an agent `web` that runs and has written
its DEFIB_TOKEN as its first line.
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
    assert {agent["name"] for agent in data["agents"]} == {"flap", "web"}, data
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
    return (await call(session, "logs", name="web"))[1].splitlines()[0]


async def acts(session):
    assert await names(session) == LOOKS + ACTIONS
    failed, text, data = await call(session, "restart", name="web")
    assert not failed and data["agents"][0]["run"] == 2, text
    failed, text, _ = await call(session, "restart", name="flap")
    assert failed and "revive" in text, text
    failed, text, data = await call(session, "stop", name="web")
    assert not failed and data["agents"][0]["state"] == "stopped", text


async def inside(session):
    failed, text, _ = await call(session, "why", name="flap")
    print("an agent asks why its sibling died:", "refused: " + text if failed else text.splitlines()[0])


async def main():
    token = await session_with([], {}, looks)
    socket = os.path.join(os.environ["DEFIB_HOME"], "defib.sock")
    own = {"DEFIB_SOCKET": socket, "DEFIB_TOKEN": token}
    await session_with([], own, inside)
    await session_with(["--allow-actions"], {}, acts)
    print("the tools are listed and called")


asyncio.run(main())
