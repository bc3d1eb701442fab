//! Figures as `OpenMetrics` text: what `/metrics` shows.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{Figure, Number, RECOVERY_S, Series, Spread};

/// All of it.
pub(super) fn text(figures: Vec<Figure>) -> String {
    let mut registry = Registry::with_prefix("defib");
    registry.register_collector(Box::new(Gathered(figures)));
    let mut text = String::new();
    // A String takes whatever is written to it.
    let _ = encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Gathered(Vec<Figure>);

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for Figure { name, help, series } in &self.0 {
            let kind = match series {
                Series::Counted(_) | Series::Lasting(_) => MetricType::Counter,
                Series::Seen(_) => MetricType::Gauge,
                Series::Spread(_) => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            match series {
                Series::Counted(all) | Series::Lasting(all) => {
                    for (labels, number) in all {
                        counter(metric.encode_family(labels)?, *number)?;
                    }
                }
                Series::Seen(all) => {
                    for (labels, number) in all {
                        gauge(metric.encode_family(labels)?, *number)?;
                    }
                }
                Series::Spread(all) => {
                    for (labels, spread) in all {
                        histogram(metric.encode_family(labels)?, spread)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn counter(mut series: MetricEncoder<'_>, number: Number) -> fmt::Result {
    match number {
        Number::Whole(number) => series.encode_counter::<NoLabelSet, _, f64>(&number, None),
        Number::Real(number) => series.encode_counter::<NoLabelSet, _, f64>(&number, None),
    }
}

fn gauge(mut series: MetricEncoder<'_>, number: Number) -> fmt::Result {
    match number {
        Number::Whole(number) => series.encode_gauge(&number),
        Number::Real(number) => series.encode_gauge(&number),
    }
}

fn histogram(mut series: MetricEncoder<'_>, spread: &Spread) -> fmt::Result {
    let bounds = RECOVERY_S.into_iter().chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(spread.counts).collect();
    series.encode_histogram::<NoLabelSet>(spread.sum, spread.count(), &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_as_openmetrics_wants_them() {
        let of = |agent: &str| vec![("agent", agent.to_owned())];
        let mut spread = Spread::default();
        for value in [0.05, 0.06, 4000.0] {
            spread.add(value);
        }
        let figures = vec![
            Figure {
                name: "runs",
                help: "Runs that began",
                series: Series::Counted(vec![(of("a\"b"), Number::Whole(2))]),
            },
            Figure {
                name: "agent_uptime_seconds",
                help: "How long",
                series: Series::Seen(vec![(of("a"), Number::Real(1.5))]),
            },
            Figure {
                name: "recovery_seconds",
                help: "From death to life",
                series: Series::Spread(vec![(of("a"), spread)]),
            },
        ];
        let text = text(figures);
        for line in [
            "# TYPE defib_runs counter",
            "defib_runs_total{agent=\"a\\\"b\"} 2",
            "defib_agent_uptime_seconds{agent=\"a\"} 1.5",
            "defib_recovery_seconds_count{agent=\"a\"} 3",
            "defib_recovery_seconds_bucket{le=\"0.05\",agent=\"a\"} 1",
            "defib_recovery_seconds_bucket{le=\"0.1\",agent=\"a\"} 2",
            "defib_recovery_seconds_bucket{le=\"3600.0\",agent=\"a\"} 2",
            "defib_recovery_seconds_bucket{le=\"+Inf\",agent=\"a\"} 3",
            "# EOF",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }
}
