"""What schemathesis must not do by chance: wait for ever, or run a program that it made up."""

import schemathesis

NAMES = ["web", "flap", "tty", "rich", "pair"]


@schemathesis.hook
def before_call(context, case, kwargs):
    # What follows does not end.
    if isinstance(case.query, dict):
        case.query.pop("follow", None)
    # Mostly agents that are there: a name that chance makes up is none of them.
    path = case.path_parameters
    if isinstance(path, dict) and isinstance(path.get("name"), str) and len(path["name"]) % 4:
        path["name"] = NAMES[len(path["name"]) % len(NAMES)]
    body = case.body
    if not isinstance(body, dict):
        return
    if case.operation.path == "/api/v1/agents" and isinstance(body.get("command"), list):
        body["command"] = ["sleep", "100000"]
    if case.operation.path == "/api/v1/logs":
        body["follow"] = False
