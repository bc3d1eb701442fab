"""Reads /metrics from standard input as Prometheus does, and holds it to what is said of it.

metrics.py FOLDER: of an agent `flap` that died twice, and an agent `web` that has beaten and spent 3 of 10
scrip. Every name that the files of FOLDER ask for has to be one that there is.
"""

import pathlib
import re
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

found = {family.name: family for family in text_string_to_metric_families(sys.stdin.read())}


def value(name, **labels):
    """The one sample of a family with these labels."""
    samples = [s for s in found[name].samples if labels.items() <= s.labels.items() and not s.name.endswith("_created")]
    assert len(samples) == 1, (name, labels, samples)
    return samples[0].value


flap, web = {"agent": "flap", "project": "p"}, {"agent": "web", "project": "p"}
assert value("defib_deaths", **flap, **{"class": "error"}) == 2
assert value("defib_runs", **flap) == 2
assert value("defib_restarts", **flap) == 1
assert value("defib_permanent_deaths", **flap) == 1
assert value("defib_agent_state", **flap) == 1
assert value("defib_agent_state", **web, state="running") == 1
assert 0 <= value("defib_agent_heartbeat_age_seconds", **web) < 3600
assert value("defib_agent_spent", **web, unit="scrip") == 3
assert value("defib_agent_balance", **web, unit="scrip") == 7
assert found["defib_recovery_seconds"].type == "histogram" and found["defib_recovery_seconds"].samples
for process in ["daemon", "keeper"]:
    assert value("defib_process_resident_memory_bytes", process=process) > 1 << 20
    assert value("defib_process_cpu_seconds", process=process) >= 0

# What a file may ask for: each family by the names of its samples. Some are there only at times.
known = {"defib_otlp_exports_total"}
for family in found.values():
    ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"], "info": ["_info"]}
    known |= {family.name + end for end in ends.get(family.type, [""])}
for file in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    asked = set(re.findall(r"\bdefib_\w+", file.read_text()))
    assert asked and asked <= known, (file.name, asked - known)
print(len(found), "families of metrics are understood, and nothing else is asked for")
