//! `GET /usage`: totals by window, customer and property, from what was added up when the events came.
use std::time::Duration;

use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{BAD_CURSOR, FORBIDDEN, Fault, INVALID, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Query, Routes, Scope as CursorScope},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{Application, ApplicationId, Environment},
    enter::Session,
    orgs::OrgId,
};

use super::{
    ORG_REQUIRED, UNKNOWN_METER,
    access::{self, Accept},
    model::{self, Series, SlotTotal, StoredEvent},
    windows::{Range, Window},
};
use crate::{
    invoices::{self, InvoiceId},
    keyed::KeyedSession,
    plans::{Aggregation, Plans, TrackedMeter},
};

pub fn routes() -> Routes {
    Routes::new("usage")
        .get("/usage", usage, "usage totals for an app")
        .fails(&[ORG_REQUIRED, UNKNOWN_METER, NOT_FOUND, FORBIDDEN, BAD_CURSOR])
        .answers::<UsageList>(200, "application/json")
        .answers::<String>(200, "text/csv")
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Report {
    org_id: Option<OrgId>,
    app_id: Option<ApplicationId>,
    meter: Option<String>,
    #[schemars(length(min = 1, max = 128))]
    customer: Option<String>,
    /// Left out: this month until now.
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    window: Option<Window>,
    /// `customer`, `event` or a property. Needs `appId` and `meter`.
    #[schemars(length(min = 1, max = 64))]
    group_by: Option<String>,
    environment: Option<Environment>,
    /// Such as `Europe/Berlin`.
    #[schemars(length(min = 1, max = 64))]
    tz: Option<String>,
    /// The usage that an invoice has lines for, each with the range of its line. Takes the place of `from`, `to`, `window`,
    /// `environment` and `tz`.
    invoice: Option<InvoiceId>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UsageRow {
    app_id: ApplicationId,
    meter: String,
    unit: String,
    aggregation: Aggregation,
    from: Timestamp,
    to: Timestamp,
    value: i64,
    events: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer: Option<String>,
    /// The value of the property that was grouped by.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<EventView>,
    #[serde(skip)]
    key: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EventView {
    event_id: String,
    received_at: Timestamp,
    properties: serde_json::Map<String, serde_json::Value>,
    /// Minor units and currency.
    cost: Option<String>,
    /// Whether it adjusts another one.
    is_correction: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UsageList {
    usage: Vec<UsageRow>,
    as_of: Timestamp,
    next_cursor: Option<String>,
}

const DAY: Duration = Duration::from_hours(24);

/// What is asked for, looked up.
struct Question<'a> {
    janua: &'a Janua,
    environment: Environment,
    customer: &'a str,
    range: Range,
    window: Window,
    windows: Vec<(Timestamp, Timestamp)>,
}

async fn usage(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Query(mut report): Query<Report>,
    accept: Accept,
    page: Page,
) -> Result<Response> {
    report.app_id = caller.app(report.app_id)?;
    if let Some(invoice) = report.invoice {
        return of_invoice(&janua, &caller.session, &report, invoice, &accept, page).await;
    }
    let scope = access::scope(&janua, &caller.session, report.org_id, report.app_id).await?;
    let (plans, now) = (Plans::of(&janua), janua.clock.now());
    let mut meters: Vec<&TrackedMeter> = match &report.meter {
        Some(name) => {
            let meter = plans.meters.get(name);
            vec![meter.ok_or_else(|| UNKNOWN_METER.at("meter", "unknown", "is not the name of a meter"))?]
        }
        None => plans.meters.values().collect(),
    };
    let range = Range::read(report.from, report.to, report.tz.as_deref(), now)?;
    let window = report.window.unwrap_or_default();
    if let Some(field) = range.not_days(window, now) {
        if report.meter.is_some() && meters.iter().any(|meter| meter.aggregation == Aggregation::Unique) {
            return Err(INVALID.at(field, "unique", "must fit days in UTC, in which unique keys are counted"));
        }
        // Of all meters those that can be answered.
        meters.retain(|meter| meter.aggregation != Aggregation::Unique);
    }
    let windows = range.windows(window)?;
    let question = Question {
        janua: &janua,
        environment: report.environment.unwrap_or(Environment::Live),
        customer: report.customer.as_deref().unwrap_or_default(),
        range,
        window,
        windows,
    };
    let found_by = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        report.app_id,
        report.meter,
        report.customer,
        report.from,
        report.to,
        window,
        report.group_by,
        report.environment,
        report.tz
    );
    let list = CursorScope::from(scope.org.id).found_by(&found_by);
    let fetch = async |below: Key, most: u32| match report.group_by.as_deref() {
        None => question.plain(&scope.apps, &meters, &below, most).await,
        Some(group_by) => {
            let ([app], [meter], Some(_)) = (&scope.apps[..], &meters[..], report.app_id) else {
                return Err(INVALID.at("groupBy", "needs", "needs appId and meter"));
            };
            match group_by {
                "event" => question.events(app, meter, &below, most).await,
                "customer" => question.grouped(app, meter, None, &below, most).await,
                property if meter.group_by.iter().any(|known| known == property) => {
                    question.grouped(app, meter, Some(property), &below, most).await
                }
                _ => {
                    Err(INVALID.at("groupBy", "unknown", "must be customer, event or a property the meter groups by"))
                }
            }
        }
    };
    let Listed { rows, next_cursor } = page.list(&janua, "usage", list, fetch, key_of).await?;
    let usage = UsageList { usage: rows, as_of: now, next_cursor };
    Ok(if accept.csv { csv(&usage) } else { Json(usage).into_response() })
}

/// One app's part of a line of an invoice.
struct Piece<'a> {
    app: Application,
    meter: &'a TrackedMeter,
    from: Timestamp,
    to: Timestamp,
}

/// What an invoice's lines count, down to the events. Strangers learn nothing about invoices.
async fn of_invoice(
    janua: &Janua,
    session: &Session,
    report: &Report,
    invoice: InvoiceId,
    accept: &Accept,
    page: Page,
) -> Result<Response> {
    let instead = [
        ("from", report.from.is_some()),
        ("to", report.to.is_some()),
        ("window", report.window.is_some()),
        ("environment", report.environment.is_some()),
        ("tz", report.tz.is_some()),
    ];
    let mut wrong = instead.into_iter().filter(|(_, is_there)| *is_there).map(|(field, _)| field);
    if let Some(first) = wrong.next() {
        let fault = INVALID.at(first, "invoice", "cannot be combined with invoice");
        return Err(wrong.fold(fault, |fault, field| fault.and(field, "invoice", "cannot be combined with invoice")));
    }
    let (org, apps, items) = invoices::usage_of(janua, invoice).await?.ok_or(NOT_FOUND)?;
    if report.org_id.is_some_and(|named| named != org) {
        return Err(NOT_FOUND.into());
    }
    let scope = access::scope(janua, session, Some(org), report.app_id).await?;
    let plans = Plans::of(janua);
    let mut pieces = vec![];
    for item in &items {
        let Some(meter) = plans.meters.get(&item.meter) else { continue };
        if report.meter.as_ref().is_some_and(|named| *named != item.meter) {
            continue;
        }
        let (from, to) = item.usage_range();
        let of_payer = scope.apps.iter().filter(|app| apps.contains(&app.id)).cloned();
        pieces.extend(of_payer.map(|app| Piece { app, meter, from, to }));
    }
    let group_by = report.group_by.as_deref();
    let knows = |piece: &Piece<'_>, name: &str| piece.meter.group_by.iter().any(|known| known == name);
    if let Some(name) = group_by.filter(|name| !matches!(*name, "event" | "customer")) {
        pieces.retain(|piece| knows(piece, name));
        if pieces.is_empty() {
            return Err(INVALID.at(
                "groupBy",
                "unknown",
                "must be customer, event or a property the meter groups by",
            ));
        }
    }
    let found_by = format!("{invoice} {:?} {:?} {:?} {group_by:?}", report.app_id, report.meter, report.customer);
    let list = CursorScope::from(org).found_by(&found_by);
    let fetch = async |below: Key, most: u32| {
        // A cursor says in which piece it is, and where in it.
        let place = after(&below).and_then(|text| text.split_once('/'));
        let (first, inside) = match place.and_then(|(place, rest)| Some((place.parse::<usize>().ok()?, rest))) {
            Some((place, rest)) => (place, Some(Key { at: below.at, id: rest.to_owned() })),
            None => (0, None),
        };
        let mut rows = vec![];
        for (place, piece) in pieces.iter().enumerate().skip(first) {
            let below = inside.clone().filter(|_| place == first).unwrap_or_else(Key::newest);
            let range = Range::read(Some(piece.from), Some(piece.to), None, janua.clock.now())?;
            let question = Question {
                janua,
                environment: Environment::Live,
                customer: report.customer.as_deref().unwrap_or_default(),
                windows: vec![(piece.from, piece.to)],
                range,
                window: Window::Total,
            };
            let left = most - u32::try_from(rows.len()).unwrap_or(most);
            let apps = std::slice::from_ref(&piece.app);
            let found = match group_by {
                None => question.plain(apps, &[piece.meter], &below, left).await?,
                Some("event") => question.events(&piece.app, piece.meter, &below, left).await?,
                Some("customer") => question.grouped(&piece.app, piece.meter, None, &below, left).await?,
                Some(name) => question.grouped(&piece.app, piece.meter, Some(name), &below, left).await?,
            };
            rows.extend(found.into_iter().map(|row| UsageRow { key: format!("{place}/{}", row.key), ..row }));
            if rows.len() >= most as usize {
                break;
            }
        }
        Ok::<_, Fault>(rows)
    };
    let Listed { rows, next_cursor } = page.list(janua, "usage", list, fetch, key_of).await?;
    let usage = UsageList { usage: rows, as_of: janua.clock.now(), next_cursor };
    Ok(if accept.csv { csv(&usage) } else { Json(usage).into_response() })
}

fn key_of(row: &UsageRow) -> Key {
    Key { at: if row.event.is_some() { row.from } else { Timestamp(0) }, id: row.key.clone() }
}

impl Question<'_> {
    /// Every app and meter, window by window.
    async fn plain(
        &self,
        apps: &[Application],
        meters: &[&TrackedMeter],
        below: &Key,
        most: u32,
    ) -> Result<Vec<UsageRow>> {
        let first = after(below).and_then(|place| place.parse::<usize>().ok()).map_or(0, |place| place + 1);
        let (count, mut rows) = (self.windows.len(), vec![]);
        for place in first / count..apps.len() * meters.len() {
            let (app, meter) = (&apps[place / meters.len()], meters[place % meters.len()]);
            let series = self.series(app, meter, "", self.customer, "");
            for (number, mut row) in self.rows(meter, &series).await?.into_iter().enumerate() {
                let number = place * count + number;
                if number >= first {
                    row.key = number.to_string();
                    rows.push(row);
                }
            }
            if rows.len() >= most as usize {
                break;
            }
        }
        rows.truncate(most as usize);
        Ok(rows)
    }

    /// Every customer, or every value of a property, window by window.
    async fn grouped(
        &self,
        app: &Application,
        meter: &TrackedMeter,
        property: Option<&str>,
        below: &Key,
        most: u32,
    ) -> Result<Vec<UsageRow>> {
        let place =
            after(below).and_then(|place| place.split_once(' ')).map(|(number, group)| (number.parse(), group));
        let (first, group) = match place {
            Some((Ok(number), group)) => (number, group.to_owned()),
            _ => (0_usize, String::new()),
        };
        let groups = most / u32::try_from(self.windows.len()).unwrap_or(1).max(1) + 2;
        let (from, to) = (self.range.from, self.range.to);
        let of = self.series(app, meter, property.unwrap_or_default(), self.customer, "");
        let db = &self.janua.db;
        let found = match property {
            Some(_) => model::choices(db, &of, from, to, &group, groups).await?,
            None if self.customer.is_empty() => model::customers(db, &of, from, to, &group, groups).await?,
            None => vec![self.customer.to_owned()],
        };
        let mut rows = vec![];
        for one in found {
            let series = match property {
                Some(property) => self.series(app, meter, property, self.customer, &one),
                None => self.series(app, meter, "", &one, ""),
            };
            for (number, mut row) in self.rows(meter, &series).await?.into_iter().enumerate() {
                if one == group && number < first {
                    continue;
                }
                row.key = format!("{} {one}", number + 1);
                row.group = property.map(|_| one.clone());
                rows.push(row);
            }
            if rows.len() >= most as usize {
                break;
            }
        }
        rows.truncate(most as usize);
        Ok(rows)
    }

    /// The events themselves, newest first.
    async fn events(&self, app: &Application, meter: &TrackedMeter, below: &Key, most: u32) -> Result<Vec<UsageRow>> {
        let series = self.series(app, meter, "", self.customer, "");
        let (from, to) = (self.range.from, self.range.to);
        let events = StoredEvent::page(&self.janua.db, &series, from, to, below, most).await?;
        let rows = events.into_iter().map(|event| UsageRow {
            app_id: event.app_id,
            meter: event.meter,
            unit: meter.meter.unit.to_string(),
            aggregation: meter.aggregation,
            from: event.at,
            to: event.at,
            value: event.value,
            events: i64::from(event.corrects.is_none()),
            customer: Some(event.customer).filter(|customer| !customer.is_empty()),
            group: None,
            key: event.id.to_string(),
            event: Some(EventView {
                event_id: event.event_id,
                received_at: event.received_at,
                properties: event.properties.as_object().cloned().unwrap_or_default(),
                cost: event.cost,
                is_correction: event.corrects.is_some(),
            }),
        });
        Ok(rows.collect())
    }

    fn series<'a>(
        &self,
        app: &Application,
        meter: &'a TrackedMeter,
        property: &'a str,
        customer: &'a str,
        choice: &'a str,
    ) -> Series<'a> {
        Series { app: app.id, environment: self.environment, meter: &meter.meter.name, property, customer, choice }
    }

    /// One row for each window, also where nothing was counted.
    async fn rows(&self, meter: &TrackedMeter, series: &Series<'_>) -> Result<Vec<UsageRow>> {
        let (db, from, to) = (&self.janua.db, self.range.from, self.range.to);
        let mut values: Vec<(i64, i64)> = match self.window {
            Window::Total => {
                let whole = SlotTotal::whole(db, series, from, to).await?;
                vec![(value(meter.aggregation, &whole), whole.events)]
            }
            _ => self.fold(meter.aggregation, &SlotTotal::all(db, series, "q", from, to).await?),
        };
        if meter.aggregation == Aggregation::Unique {
            for ((value, _), (from, to)) in values.iter_mut().zip(&self.windows) {
                *value = self.unique(series, *from, *to).await?;
            }
        }
        let rows = values.into_iter().zip(&self.windows).map(|((value, events), (from, to))| UsageRow {
            app_id: series.app,
            meter: meter.meter.name.to_string(),
            unit: meter.meter.unit.to_string(),
            aggregation: meter.aggregation,
            from: *from,
            to: *to,
            value,
            events,
            customer: Some(series.customer.to_owned()).filter(|customer| !customer.is_empty()),
            group: None,
            event: None,
            key: String::new(),
        });
        Ok(rows.collect())
    }

    /// A day or a month that is whole, or goes on until now, was added up; other days are counted.
    async fn unique(&self, series: &Series<'_>, from: Timestamp, to: Timestamp) -> Result<i64> {
        let db = &self.janua.db;
        for (span, (start, end)) in [("m", from.month()), ("d", (from.day().start(), from.plus(DAY)))] {
            if from == start && (to == end || to < end && to > self.janua.clock.now()) {
                let added = SlotTotal::all(db, series, span, start, Timestamp(start.0 + 1)).await?;
                return Ok(added.first().map_or(0, |added| added.total));
            }
        }
        Ok(SlotTotal::unique(db, series, from, to).await?)
    }

    fn fold(&self, aggregation: Aggregation, slots: &[SlotTotal]) -> Vec<(i64, i64)> {
        let mut slots = slots.iter().peekable();
        let each = self.windows.iter().map(|(_, to)| {
            let none = SlotTotal { slot: 0, total: 0, events: 0, most: 0, latest: 0, latest_at: 0 };
            let mut window = none;
            while let Some(slot) = slots.next_if(|slot| slot.slot < to.0) {
                window.total = window.total.saturating_add(slot.total);
                window.events += slot.events;
                window.most = window.most.max(slot.most);
                (window.latest, window.latest_at) = (slot.latest, slot.latest_at);
            }
            (value(aggregation, &window), window.events)
        });
        each.collect()
    }
}

/// What a cursor says; nothing on the first page.
fn after(below: &Key) -> Option<&str> {
    (*below != Key::newest()).then_some(below.id.as_str())
}

fn value(aggregation: Aggregation, slot: &SlotTotal) -> i64 {
    match aggregation {
        Aggregation::Sum | Aggregation::Unique => slot.total,
        Aggregation::Count => slot.events,
        Aggregation::Max => slot.most,
        Aggregation::Latest => slot.latest,
    }
}

fn csv(usage: &UsageList) -> Response {
    // A text that a spreadsheet would take for a formula begins with a quote.
    let quoted = |text: &str| {
        let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    };
    let mut lines = vec!["appId,meter,unit,aggregation,from,to,value,events,customer,group,eventId".to_owned()];
    for row in &usage.usage {
        let aggregation = serde_json::to_value(row.aggregation).unwrap_or_default();
        lines.push(format!(
            "{},{},{},{},{},{},{},{},{},{},{}",
            row.app_id,
            row.meter,
            quoted(&row.unit),
            aggregation.as_str().unwrap_or_default(),
            row.from,
            row.to,
            row.value,
            row.events,
            quoted(row.customer.as_deref().unwrap_or_default()),
            quoted(row.group.as_deref().unwrap_or_default()),
            quoted(row.event.as_ref().map_or("", |event| &event.event_id)),
        ));
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/csv; charset=utf-8"));
    if let Some(cursor) = usage.next_cursor.as_deref().and_then(|cursor| cursor.parse().ok()) {
        headers.insert("x-next-cursor", cursor);
    }
    (headers, lines.join("\r\n") + "\r\n").into_response()
}
