//! Draws what the view knows: header, list, pane, status line, keys. It decides nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use defib_core::span::Shown;
use defib_core::{Name, State};
use defib_daemon::wire::ChannelFailure;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use unicode_width::UnicodeWidthStr;

use super::app::{App, Focus, Prompt};
use super::columns::{Column, fit, fitting, group_words};
use super::keys::TABLE;
use super::look::{Look, bold, dim, reversed};
use super::pane::{Kind, Pane};
use super::rows::{Order, Row};

/// The marks in front of a row: selected, flapping.
const MARKS: usize = 2;
/// The list keeps so many lines when a pane is open.
const LEAST_LIST: u16 = 5;

/// A frame for terminals that show nothing but ASCII.
const ASCII: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Draws everything. The sizes that were drawn in are what pages are as long as.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &mut App, look: Look) {
    let banner = banner(app, look);
    let loudness = u16::try_from(banner.len()).unwrap_or(0);
    let [head, loud, body, said, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(loudness),
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(header(app, look, usize::from(head.width)), head);
    frame.render_widget(Paragraph::new(banner), loud);
    let pane = match (&app.pane, app.is_zoomed) {
        (None, _) => 0,
        (Some(_), true) => body.height,
        (Some(_), false) => (body.height * 3 / 5).min(body.height.saturating_sub(LEAST_LIST)),
    };
    let [list, below] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(pane)]).areas(body);
    draw_list(frame, app, look, list);
    let has_focus = app.focus == Focus::Pane;
    if let Some(pane) = &mut app.pane {
        draw_pane(frame, pane, look, has_focus, below);
    }
    draw_said(frame, app, look, said);
    frame.render_widget(hints(app, look, usize::from(keys.width)), keys);
    if app.shows_help {
        draw_help(frame, look);
    }
}

/// How many agents are in which state, and how often they were restarted.
fn header(app: &App, look: Look, width: usize) -> Line<'static> {
    let states = [
        State::CrashedOut,
        State::Halted,
        State::Running,
        State::Starting,
        State::Backoff,
        State::Waiting,
        State::Stopping,
        State::Idle,
        State::Stopped,
        State::Done,
    ];
    let total = app.agents.len();
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let restarts: u64 = app.agents.iter().map(|agent| u64::from(agent.restarts)).sum();
    let front =
        format!("  {total} agent{}  {restarts} restart{}", plural(total as u64), plural(restarts));
    let flapping = app.agents.iter().filter(|agent| agent.flapping).count();
    let counts: Vec<(State, usize)> = states
        .into_iter()
        .map(|state| (state, app.agents.iter().filter(|agent| agent.state == state).count()))
        .filter(|(_, count)| *count > 0)
        .collect();
    let line = |words: Words, totals: Option<String>| {
        let said = |shape: char, count: usize, word: &str, is_loud: bool| match words {
            Words::Loud if !is_loud => format!("  {shape} {count}"),
            Words::None => format!(" {shape}{count}"),
            Words::All | Words::Loud => format!("  {shape} {count} {word}"),
        };
        let mut spans = vec![Span::styled("defib top", bold()), Span::raw(front.clone())];
        if flapping > 0 {
            spans.push(Span::styled(said('~', flapping, "flapping", true), look.warned()));
        }
        for (state, count) in &counts {
            let is_loud = matches!(state, State::CrashedOut | State::Halted);
            let text = said(look.shape(*state), *count, state.word(), is_loud);
            spans.push(Span::styled(text, look.state(*state)));
        }
        spans.extend(totals.map(|totals| Span::styled(totals, dim())));
        Line::from(spans)
    };
    let tries = [(Words::All, totals(app)), (Words::All, None), (Words::Loud, None)];
    let mut lines = tries.into_iter().map(|(words, totals)| line(words, totals));
    lines.find(|line| line.width() <= width).unwrap_or_else(|| line(Words::None, None))
}

/// What the last day adds up to, beside what is so now.
fn totals(app: &App) -> Option<String> {
    let totals = app.totals.as_ref()?;
    let deaths = totals.permanent_deaths;
    let recovery = totals.median_recovery_s.and_then(|s| Duration::try_from_secs_f64(s).ok());
    let recovery = recovery.map(|span| {
        // Nobody reads the milliseconds of minutes.
        let unit = if span < Duration::from_secs(10) { 100 } else { 1000 };
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        format!(", back in {}", Shown(Duration::from_millis(millis / unit * unit)))
    });
    let plural = if deaths == 1 { "" } else { "s" };
    let recovery = recovery.unwrap_or_default();
    Some(format!("  {deaths} permanent death{plural}{recovery}"))
}

/// Which states are told by their words as well, and not by their shapes alone.
#[derive(Clone, Copy)]
enum Words {
    All,
    /// Those that must not be overlooked.
    Loud,
    None,
}

/// What cannot wait: that what is shown is old, or that agents need a person; and that nobody would be
/// told of it.
fn banner(app: &App, look: Look) -> Vec<Line<'static>> {
    if let Some(since) = app.away {
        let text = format!(
            " stale since {}: the daemon does not answer; it is asked again and again ",
            app.clock(since)
        );
        return vec![Line::styled(text, look.banner())];
    }
    let is_down = |state| matches!(state, State::CrashedOut | State::Halted);
    let down: Vec<&str> = app
        .agents
        .iter()
        .filter(|agent| is_down(agent.state))
        .map(|agent| agent.name.as_str())
        .collect();
    let (count, names) = (down.len(), down.iter().take(8).copied().collect::<Vec<_>>().join(", "));
    let more = if count > 8 { format!(" and {} more", count - 8) } else { String::new() };
    let verb = if count == 1 { "needs" } else { "need" };
    let down = (count > 0).then(|| format!(" {count} {verb} you: {names}{more} "));
    let texts = down.into_iter().chain(failing(app));
    texts.map(|text| Line::styled(text, look.banner())).collect()
}

/// That messages to people do not arrive: of one channel why, of several which.
fn failing(app: &App) -> Option<String> {
    let all = app.agents.iter().flat_map(|agent| {
        agent.channels_failing.iter().map(|failure| ((&agent.project, &failure.channel), failure))
    });
    let all: BTreeMap<_, &ChannelFailure> = all.collect();
    let called = |(project, channel): (&Name, &Name)| format!("{project}/{channel}");
    match all.iter().next()? {
        (channel, failure) if all.len() == 1 => {
            Some(format!(" channel {} fails: {} ", called(*channel), failure.why))
        }
        _ => {
            let names: Vec<String> = all.into_keys().map(called).collect();
            Some(format!(" {} channels fail: {} ", names.len(), names.join(", ")))
        }
    }
}

fn draw_list(frame: &mut Frame<'_>, app: &mut App, look: Look, area: Rect) {
    app.fit(usize::from(area.height.saturating_sub(1)));
    if area.height == 0 {
        return;
    }
    let columns = fitting(app, usize::from(area.width).saturating_sub(MARKS));
    let mut head = format!("{:MARKS$}", "");
    for (at, (column, width)) in columns.iter().enumerate() {
        head.push_str(if at == 0 { "" } else { " " });
        head.push_str(&fit(look, column.title(*width), *width, column.is_right()));
    }
    let mut lines = vec![Line::styled(head, bold())];
    lines.extend(app.visible().iter().map(|row| line(app, look, &columns, row)));
    if app.rows.is_empty() {
        let text = if app.agents.is_empty() {
            "no agents; `defib up` brings a project up".to_owned()
        } else {
            format!("no agent has {:?} in its name; Esc shows all", app.wish.filter)
        };
        lines.push(Line::styled(format!("{:MARKS$}{text}", ""), dim()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// A row.
fn line(app: &App, look: Look, columns: &[(Column, usize)], row: &Row) -> Line<'static> {
    let is_selected = app.is_selected(row);
    let mark = if is_selected { ">" } else { " " };
    let line = match row {
        Row::Group { name, depth, state, .. } => {
            let text = format!("{mark} {:1$}{name}  ", "", depth * 2);
            Line::from(vec![
                Span::styled(text, bold()),
                Span::styled(state.to_string(), look.state(*state)),
                Span::styled(format!("  {}", group_words(row)), dim()),
            ])
        }
        Row::Agent { at, depth } => {
            let agent = &app.agents[*at];
            let flapping = if agent.flapping { "~" } else { " " };
            let mut spans = vec![Span::raw(mark), Span::styled(flapping, look.warned())];
            for (at, (column, width)) in columns.iter().enumerate() {
                let (mut text, style) = column.cell(app, look, agent, *width);
                if *column == Column::Agent {
                    text.insert_str(0, &" ".repeat(depth * 2));
                }
                let gap = if at == 0 { "" } else { " " };
                let text = format!("{gap}{}", fit(look, &text, *width, column.is_right()));
                spans.push(Span::styled(text, style));
            }
            Line::from(spans)
        }
    };
    if is_selected { line.style(reversed()) } else { line }
}

fn draw_pane(frame: &mut Frame<'_>, pane: &mut Pane, look: Look, has_focus: bool, area: Rect) {
    if area.height == 0 {
        return;
    }
    let (width, height) = (usize::from(area.width), usize::from(area.height - 1));
    pane.fit(width, height);
    let of = pane.agent.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let what = match pane.kind {
        Kind::Why => format!("why{of}"),
        Kind::Logs => format!("logs{of}"),
        Kind::Events => "events".to_owned(),
    };
    let (first, last, all) = pane.place();
    let follows = if pane.kind != Kind::Why && pane.is_followed() { ", following" } else { "" };
    let search = match pane.search.as_str() {
        "" => String::new(),
        text => format!(", search {text:?}"),
    };
    let place = format!(" {first}-{last} of {all}{follows}{search} ");
    let rule = if look.has_shapes { "─" } else { "-" };
    let room = width.saturating_sub(place.width() + 4);
    let what = if what.width() > room { fit(look, &what, room, false) } else { what };
    let front = format!("{rule}{rule} {what} ");
    let fill = width.saturating_sub(front.width() + place.width());
    let title = format!("{front}{}{place}", rule.repeat(fill));
    let style = if has_focus { reversed().patch(bold()) } else { bold() };
    let mut lines = vec![Line::styled(fit(look, &title, width, false), style)];
    lines.extend(pane.visible().map(|line| found(line, &pane.search, look)));
    if let Some(line) = pane.unfinished() {
        // It takes the place of the line at the top, as it would on a terminal.
        if lines.len() > height && height > 0 {
            lines.remove(1);
        }
        lines.push(Line::raw(line));
    }
    if pane.is_empty() {
        lines.push(Line::styled("nothing yet", dim()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// A line in which what is searched for stands out.
fn found<'a>(line: &'a str, search: &str, look: Look) -> Line<'a> {
    let lower = line.to_lowercase();
    let wanted = search.to_lowercase();
    // Where lower case is of another length, places in the one are not places in the other.
    if wanted.is_empty() || lower.len() != line.len() {
        return Line::raw(line);
    }
    let (mut spans, mut from) = (Vec::new(), 0);
    for (at, _) in lower.match_indices(&wanted) {
        let to = at + wanted.len();
        if let (Some(before), Some(hit)) = (line.get(from..at), line.get(at..to)) {
            spans.extend([Span::raw(before), Span::styled(hit, look.warned().patch(reversed()))]);
            from = to;
        }
    }
    spans.push(Span::raw(line.get(from..).unwrap_or_default()));
    Line::from(spans)
}

/// What is being asked, or what became of what was.
fn draw_said(frame: &mut Frame<'_>, app: &App, look: Look, area: Rect) {
    let asked = match &app.prompt {
        Some(Prompt::Filter { .. }) => Some(format!("filter: {}", app.wish.filter)),
        Some(Prompt::Search(text)) => Some(format!("search: {text}")),
        Some(Prompt::Kill(name)) => Some(format!("kill {name}? y/n ")),
        Some(Prompt::Fund { name, text }) => {
            Some(format!("fund {name} with (such as 10 usd): {text}"))
        }
        Some(Prompt::Change { name, text }) => {
            Some(format!("grant {name} (such as net:443; -net:443 revokes): {text}"))
        }
        None => None,
    };
    if let Some((text, is_wrong)) = &app.notice {
        let style = if *is_wrong { look.loud() } else { Style::new() };
        // An answer that was no good is said where the question stands, until a key is pressed.
        let text = match &asked {
            Some(asked) => format!("{asked}   ({text})"),
            None => text.clone(),
        };
        frame.render_widget(Line::styled(text, style), area);
    } else if let Some(asked) = &asked {
        frame.render_widget(Line::styled(asked.clone(), bold()), area);
    } else {
        frame.render_widget(Line::styled(place(app), dim()), area);
    }
    if let Some(asked) = asked {
        let at = u16::try_from(asked.width()).unwrap_or(u16::MAX);
        let x = area.x.saturating_add(at).min(area.right().saturating_sub(1));
        frame.set_cursor_position(Position::new(x, area.y));
    }
}

/// Where in the list one is.
fn place(app: &App) -> String {
    let at = app.position().map_or(0, |at| at + 1);
    let mut text = format!("{at} of {}", app.rows.len());
    let (above, below) = app.hidden();
    if above + below > 0 {
        text.push_str(&format!(" ({above} above, {below} below)"));
    }
    if app.wish.tree {
        text.push_str(", by group");
    } else if app.wish.order == Order::Name {
        text.push_str(", by name");
    }
    if !app.wish.filter.is_empty() {
        text.push_str(&format!(", filter {:?}", app.wish.filter));
    }
    text
}

/// The keys that are worth a reminder, as many as there is room for.
fn hints(app: &App, look: Look, width: usize) -> Line<'static> {
    let list = [
        ("q", "quit"),
        ("?", "help"),
        ("w", "why"),
        ("l", "logs"),
        ("v", "revive"),
        ("r", "restart"),
        ("s", "start"),
        ("x", "stop"),
        ("e", "events"),
        ("/", "filter"),
        ("k", "kill"),
        ("a", "attach"),
        ("f", "fund"),
        ("c", "capability"),
        ("o", "order"),
        ("g", "groups"),
    ];
    let pane = [
        ("q", "quit"),
        ("?", "help"),
        ("Tab", "list"),
        ("Esc", "close"),
        ("/", "search"),
        ("n", "next"),
        ("z", "zoom"),
        ("w", "why"),
        ("l", "logs"),
        ("e", "events"),
        ("v", "revive"),
        ("r", "restart"),
    ];
    let all: &[(&str, &str)] = match app.focus {
        Focus::List => &list,
        Focus::Pane => &pane,
    };
    let (mut spans, mut used) = (Vec::new(), 0);
    for (key, word) in all {
        used += key.width() + word.width() + 3;
        if used > width + 2 {
            break;
        }
        spans.push(Span::styled((*key).to_owned(), look.warned()));
        spans.push(Span::raw(format!(" {word}  ")));
    }
    Line::from(spans)
}

fn draw_help(frame: &mut Frame<'_>, look: Look) {
    let screen = frame.area();
    let (rows, inset) = (u16::try_from(TABLE.len()).unwrap_or(u16::MAX), 2);
    let area = screen.centered(
        Constraint::Length(78.min(screen.width)),
        Constraint::Length((rows + inset).min(screen.height)),
    );
    let lines: Vec<Line<'_>> = TABLE
        .iter()
        .map(|(keys, what)| {
            Line::from(vec![Span::styled(format!(" {keys:27}"), bold()), Span::raw(*what)])
        })
        .collect();
    let set = if look.has_shapes { border::PLAIN } else { ASCII };
    let block = Block::bordered().border_set(set);
    let block = block.title(" keys ").title_bottom(" any key closes this ");
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
