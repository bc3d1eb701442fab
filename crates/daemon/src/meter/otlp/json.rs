//! The few fields of OTLP metrics that are counted, read from JSON.

use serde_json::Value;

use super::{Point, Temporality};

/// The data points of an export request.
pub(super) fn points(request: &Value) -> Vec<Point> {
    let resources = list(&request["resourceMetrics"]);
    let scopes = resources.flat_map(|resource| list(&resource["scopeMetrics"]));
    let metrics = scopes.flat_map(|scope| list(&scope["metrics"]));
    metrics.flat_map(of_metric).collect()
}

fn of_metric(metric: &Value) -> Vec<Point> {
    let name = metric["name"].as_str().unwrap_or_default();
    let mut points = Vec::new();
    for (data, is_histogram) in [(&metric["sum"], false), (&metric["histogram"], true)] {
        let delta = &data["aggregationTemporality"];
        let is_delta =
            delta.as_u64() == Some(1) || delta.as_str() == Some("AGGREGATION_TEMPORALITY_DELTA");
        let temporality = if is_delta { Temporality::Delta } else { Temporality::Total };
        for point in list(&data["dataPoints"]) {
            let value = if is_histogram {
                point["sum"].as_f64()
            } else {
                point["asDouble"].as_f64().or_else(|| number(&point["asInt"]))
            };
            let Some(value) = value else { continue };
            let mut series: Vec<String> =
                list(&point["attributes"]).map(ToString::to_string).collect();
            series.sort();
            let nanos = |field: &str| {
                let nanos = &point[field];
                let text = nanos.as_str().and_then(|text| text.parse().ok());
                text.or_else(|| nanos.as_u64()).unwrap_or(0)
            };
            points.push(Point {
                metric: name.to_owned(),
                series: series.concat().into_bytes(),
                temporality,
                start: nanos("startTimeUnixNano"),
                at: nanos("timeUnixNano"),
                value,
            });
        }
    }
    points
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A whole number, which JSON exporters write as text.
fn number(value: &Value) -> Option<f64> {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_f64())
}
