"""A receiver of OpenTelemetry that reads what defib sends with OpenTelemetry's own types, and compares
it with what /metrics shows. `receiver.py SOCKET PORT_FILE WITHIN_S`: it writes down its port, refuses
the first request, and looks at those after it."""

import http.server
import json
import pathlib
import socket
import sys
import time

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from prometheus_client.openmetrics.parser import text_string_to_metric_families

# What goes on between two looks at it.
MOVES = {
    "defib_agent_uptime_seconds",
    "defib_agent_heartbeat_age_seconds",
    "defib_process_cpu_seconds",
    "defib_process_resident_memory_bytes",
    "defib_otlp_exports",
}
UNITS = {"seconds": "s", "bytes": "By"}
KINDS = {"sum": "counter", "gauge": "gauge", "histogram": "histogram"}


def shown(path):
    """What /metrics shows, by family and labels."""
    with socket.socket(socket.AF_UNIX) as ask:
        ask.connect(path)
        ask.sendall(b"GET /metrics HTTP/1.1\r\nHost: defib\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: ask.recv(65536), b"")).decode()
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200"), head
    assert "chunked" not in head.lower(), head
    families = text_string_to_metric_families(body)
    return {family.name: family for family in families if family.samples}


def labels(attributes):
    return frozenset((pair.key, pair.value.string_value) for pair in attributes)


def compare(sent, families):
    """Whether the metrics of a request are those of /metrics."""
    names = {metric.name for metric in sent} | {"defib_otlp_exports"}
    assert names == set(families), names ^ set(families)
    compared = 0
    for metric in sent:
        family, kind = families[metric.name], metric.WhichOneof("data")
        assert KINDS[kind] == family.type, (metric.name, kind, family.type)
        assert metric.description == family.documentation, metric
        assert metric.unit == UNITS.get(metric.name.rsplit("_")[-1], ""), metric
        data = getattr(metric, kind)
        if kind != "gauge":
            assert data.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE, metric
        if kind == "histogram":
            compared += histogram(data, family)
            continue
        assert kind == "gauge" or data.is_monotonic, metric
        expected = {frozenset(sample.labels.items()): sample.value for sample in family.samples}
        for point in data.data_points:
            whole = point.WhichOneof("value") == "as_int"
            value = point.as_int if whole else point.as_double
            of = labels(point.attributes)
            assert abs(point.time_unix_nano / 1e9 - time.time()) < 300, point
            if metric.name in MOVES:
                assert of in expected, (metric.name, of)
            else:
                assert expected.pop(of) == value, (metric.name, of, value)
            compared += 1
        assert metric.name in MOVES or not expected, (metric.name, expected)
    return compared


def histogram(data, family):
    for point in data.data_points:
        of = labels(point.attributes)
        samples = [s for s in family.samples if of <= frozenset(s.labels.items())]
        one = {s.name.removeprefix(family.name): s.value for s in samples if "le" not in s.labels}
        assert (one["_count"], one["_sum"]) == (point.count, point.sum), (one, point)
        below, cumulative = 0, []
        for count in point.bucket_counts:
            below += count
            cumulative.append(below)
        bounds = [float(s.labels["le"]) for s in samples if "le" in s.labels]
        assert bounds == [*point.explicit_bounds, float("inf")], (bounds, point)
        assert cumulative == [s.value for s in samples if "le" in s.labels], (samples, point)
        assert 0 < point.start_time_unix_nano <= point.time_unix_nano, point
    return len(data.data_points)


class Receiver(http.server.BaseHTTPRequestHandler):
    count = 0
    bodies = []

    def do_POST(self):
        Receiver.count += 1
        body = self.rfile.read(int(self.headers["content-length"]))
        is_good = self.path == "/base/v1/metrics" and self.headers["x-scope"] == "night shift"
        is_good = is_good and self.headers["content-type"] == "application/x-protobuf"
        status = 503 if Receiver.count == 1 else 200 if is_good else 400
        if status == 200:
            Receiver.bodies.append(body)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def main():
    path, port_file, within = sys.argv[1], pathlib.Path(sys.argv[2]), float(sys.argv[3])
    server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    server.timeout = 1
    port_file.with_suffix(".new").write_text(str(server.server_port))
    port_file.with_suffix(".new").rename(port_file)
    until, why = time.monotonic() + within, "nothing has arrived"
    while time.monotonic() < until:
        server.handle_request()
        if not Receiver.bodies:
            continue
        request = ExportMetricsServiceRequest()
        request.ParseFromString(Receiver.bodies.pop())
        [resource] = request.resource_metrics
        of = dict(labels(resource.resource.attributes))
        assert of["service.name"] == "defib" and of["host.name"] and of["service.instance.id"], of
        [scope] = resource.scope_metrics
        sent = [metric for metric in scope.metrics if metric.name != "defib_otlp_exports"]
        try:
            families = shown(path)
            # A request from before the deaths, or one that something happened after, is not the one.
            assert "defib_recovery_seconds" in {metric.name for metric in sent}, "nothing recovered"
            compared = compare(sent, families)
        except AssertionError as error:
            why = error
            continue
        exports = families["defib_otlp_exports"].samples
        exports = {sample.labels["outcome"]: sample.value for sample in exports}
        assert exports["failed"] == 1 and exports["delivered"] >= 1, exports
        print(len(sent), "metrics with", compared, "series say what /metrics says;", json.dumps(of))
        return
    sys.exit(f"in {within:.0f} s nothing was sent that says what /metrics says: {why}")


main()
