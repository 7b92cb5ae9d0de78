//! The status page: how everything does, how it did on each of the last days, and what went wrong. What a colour says
//! is said by a shape and a word, too.
use axum::{http::StatusCode, response::Response};
use kernel::{Janua, clock::Timestamp, fault::Result};
use minijinja::{Value, context};
use site::status::{Component, ComponentUptime, DAYS_KEPT, DayView, Impact, IncidentView, Overview, Stage, State};

use crate::page::{error, page};

/// The room of one day among the bars, and how much of it is the bar.
const PLACE: usize = 8;
const WIDTH: usize = 6;
const HEIGHT: usize = 30;
/// From here on a bad day is a bad day.
const A_FEW: f64 = 95.0;

/// Answers whoever would rather have a page than JSON.
pub fn status_page(janua: &Janua, overview: Result<Overview>) -> Response {
    match overview {
        Ok(overview) => draw(janua, &overview),
        Err(fault) => error(janua, &fault),
    }
}

fn draw(janua: &Janua, overview: &Overview) -> Response {
    let content = context! {
        state => overview.status.map(State::name),
        headline => headline(overview.status),
        looked => overview.updated_at.map(moment),
        components => overview.components.iter().map(|one| component(one, &overview.uptime)).collect::<Vec<_>>(),
        days => DAYS_KEPT,
        open => overview.open.iter().map(incident).collect::<Vec<_>>(),
        past => overview.past.iter().map(incident).collect::<Vec<_>>(),
    };
    page(janua, StatusCode::OK, "status.html", content)
}

fn headline(state: Option<State>) -> &'static str {
    match state {
        Some(State::Operational) => "All systems operational",
        Some(State::Degraded) => "Some systems are degraded",
        Some(State::Outage) => "Some systems are down",
        None => "No data yet",
    }
}

/// For the script, and for who has none.
fn moment(at: Timestamp) -> Value {
    let iso = at.to_string();
    let text = iso.get(..16).map(|text| format!("{} UTC", text.replace('T', " ")));
    context! { iso, text => text.unwrap_or_default() }
}

fn component(component: &Component, uptime: &[ComponentUptime]) -> Value {
    let history = uptime.iter().find(|history| history.name == component.name);
    let days = history.map(|history| history.days.as_slice()).unwrap_or_default();
    context! {
        name => name(&component.name),
        id => &component.name,
        state => component.state.name(),
        word => match component.state {
            State::Operational => "Operational",
            State::Degraded => "Degraded",
            State::Outage => "Outage",
        },
        detail => &component.detail,
        uptime => history.and_then(|history| history.uptime).map(percent),
        width => days.len() * PLACE,
        height => HEIGHT,
        bars => days.iter().enumerate().map(|(number, day)| bar(number, day)).collect::<Vec<_>>(),
        known => days.iter().rev().filter(|day| day.checks > 0).map(row).collect::<Vec<_>>(),
    }
}

fn name(component: &str) -> &str {
    match component {
        "api" => "API",
        "database" => "Database",
        "jobs" => "Background jobs",
        "mail" => "Email",
        other => other,
    }
}

/// With all its digits: 99.999 is not 100.
fn percent(of_all: f64) -> String {
    format!("{of_all}%")
}

/// The better the day, the higher its bar; a day nobody looked at lies flat.
fn bar(number: usize, day: &DayView) -> Value {
    let (class, height) = match day.uptime {
        None => ("none", 3),
        Some(_) if day.failures == 0 => ("up", HEIGHT),
        Some(of_all) if of_all >= A_FEW => ("some", HEIGHT * 2 / 3),
        Some(_) => ("down", HEIGHT / 3),
    };
    let says = day.uptime.map_or("no data".to_owned(), percent);
    let title = format!("{}: {says}", day.day);
    context! { class, title, x => number * PLACE, y => HEIGHT - height, width => WIDTH, height }
}

fn row(day: &DayView) -> Value {
    context! { day => day.day.to_string(), uptime => day.uptime.map(percent), checks => day.checks, failures => day.failures }
}

fn incident(incident: &IncidentView) -> Value {
    let updates = incident.updates.iter().rev();
    context! {
        title => &incident.title,
        impact => match incident.impact {
            Impact::None => "No impact",
            Impact::Minor => "Minor impact",
            Impact::Major => "Major impact",
            Impact::Critical => "Critical impact",
        },
        components => incident.components.iter().map(|one| name(one)).collect::<Vec<_>>().join(", "),
        began => moment(incident.created_at),
        ended => incident.resolved_at.map(moment),
        updates => updates.map(|update| context! {
            stage => stage(update.state), message => &update.message, at => moment(update.at),
        }).collect::<Vec<_>>(),
    }
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Investigating => "Investigating",
        Stage::Identified => "Identified",
        Stage::Monitoring => "Monitoring",
        Stage::Resolved => "Resolved",
    }
}
