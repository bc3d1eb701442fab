//! What an item came to: figures, ratios to the floor, and whether the targets were met.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::peers::{DEFIB, FLOOR};

/// One item's figures.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) item: &'static str,
    pub(crate) title: String,
    /// What is measured, with its unit.
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Row>,
    pub(crate) verdicts: Vec<Verdict>,
}

/// What one supervisor reached.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) figures: Vec<Option<f64>>,
    pub(crate) note: String,
}

/// A target and what became of it.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) target: String,
    pub(crate) met: bool,
    pub(crate) detail: String,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
}

impl Row {
    /// One that could not be measured, and why.
    pub(crate) fn failed(name: &'static str, why: impl std::fmt::Display) -> Row {
        Row { name, figures: Vec::new(), note: why.to_string() }
    }
}

impl Verdict {
    /// A figure against a bound.
    pub(crate) fn bound(target: &str, better: Better, figure: Option<f64>, bound: f64) -> Verdict {
        let target = target.to_owned();
        let Some(figure) = figure else {
            return Verdict { target, met: false, detail: "was not measured".to_owned() };
        };
        let met = match better {
            Better::Less => figure <= bound,
            Better::More => figure >= bound,
        };
        let detail = if met || bound == 0.0 {
            format!("{} against {}", shown(figure), shown(bound))
        } else {
            let off = (figure / bound - 1.0).abs() * 100.0;
            format!("{} against {}: off by {off:.0} %", shown(figure), shown(bound))
        };
        Verdict { target, met, detail }
    }
}

impl Outcome {
    /// A figure of the first column.
    pub(crate) fn first(&self, name: &str) -> Option<f64> {
        self.figure(name, 0)
    }

    /// A figure.
    pub(crate) fn figure(&self, name: &str, column: usize) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.name == name)?;
        row.figures.get(column).copied().flatten()
    }

    /// Whether we are ahead of every peer in a column.
    pub(crate) fn ahead(&mut self, target: &str, better: Better, column: usize) {
        let peers = self.rows.iter().filter(|row| row.name != FLOOR && row.name != DEFIB);
        let figures = peers.filter_map(|row| Some((row.name, row.figures.get(column).copied()??)));
        let best = figures.reduce(|best, next| {
            let is_better = if better == Better::Less { next.1 < best.1 } else { next.1 > best.1 };
            if is_better { next } else { best }
        });
        // Nobody to be ahead of: nothing is said.
        let Some((name, bound)) = best else { return };
        let target = format!("{target} (best: {name})");
        self.verdicts.push(Verdict::bound(&target, better, self.figure(DEFIB, column), bound));
    }

    /// As text for people.
    pub(crate) fn text(&self) -> String {
        // A ratio to nothing says nothing.
        let floor = self.first(FLOOR).filter(|floor| *floor > 0.0);
        let mut lines: Vec<Vec<String>> = Vec::new();
        let mut head = vec![String::new()];
        for (at, column) in self.columns.iter().enumerate() {
            head.push((*column).to_owned());
            head.extend((at == 0 && floor.is_some()).then(|| "× floor".to_owned()));
        }
        lines.push(head);
        for row in &self.rows {
            let mut line = vec![row.name.to_owned()];
            for at in 0..self.columns.len() {
                let figure = row.figures.get(at).copied().flatten();
                line.push(figure.map_or_else(|| "–".to_owned(), shown));
                if let Some(floor) = floor.filter(|_| at == 0) {
                    let ratio = figure.map(|figure| format!("{:.2}", figure / floor));
                    line.push(ratio.unwrap_or_else(|| "–".to_owned()));
                }
            }
            line.push(row.note.clone());
            lines.push(line);
        }
        let mut text = format!("\n({}) {}\n\n", self.item, self.title);
        let width = |at: usize| {
            lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max()
        };
        let cells = lines.first().map_or(0, Vec::len);
        for line in &lines {
            for (at, cell) in line.iter().enumerate() {
                let width = if at < cells { width(at).unwrap_or(0) } else { 0 };
                // A String takes whatever is written to it.
                let _ = match at {
                    0 => write!(text, "  {cell:width$}"),
                    _ if at < cells => write!(text, "  {cell:>width$}"),
                    _ => write!(text, "  {cell}"),
                };
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text.push('\n');
        for Verdict { target, met, detail } in &self.verdicts {
            let word = if *met { "met   " } else { "MISSED" };
            let _ = writeln!(text, "  {word}  {target}: {detail}");
        }
        text
    }

    /// As JSON for scripts.
    pub(crate) fn json(&self) -> Value {
        let row = |row: &Row| {
            let figures = self.columns.iter().zip(&row.figures);
            let figures: serde_json::Map<String, Value> =
                figures.map(|(column, figure)| ((*column).to_owned(), json!(figure))).collect();
            json!({ "name": row.name, "figures": figures, "note": row.note })
        };
        let verdict = |verdict: &Verdict| json!({ "target": verdict.target, "met": verdict.met, "detail": verdict.detail });
        json!({
            "item": self.item,
            "title": self.title,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "verdicts": self.verdicts.iter().map(verdict).collect::<Vec<_>>(),
        })
    }
}

/// Three figures that matter, whatever the size.
fn shown(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 || figure == 0.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        size if size >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

/// The one at this share of a sorted list: 0.5 is the median.
pub(crate) fn quantile(samples: &mut [f64], share: f64) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().checked_sub(1)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a list of samples"
    )]
    let at = (last as f64 * share).round() as usize;
    samples.get(at).copied()
}
