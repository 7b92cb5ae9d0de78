//! Overviews of an app and of an organization, and the time zone of its days.
use std::collections::{BTreeMap, HashMap};

use axum::{
    extract::{FromRequestParts, State},
    http::request::Parts,
    response::{IntoResponse as _, Response},
};
use db::{Db, Reach};
use kernel::{
    Janua,
    clock::{Day, Timestamp, is_time_zone},
    fault::{Code, Fault, INVALID, Result},
    http::{GenContext, Json, Operation, OperationInput, Path, Query, Routes, may_answer},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::Application,
    enter::{Admin, InApp, InOrg, Session},
    events::audit,
    ids::OrgId,
};

use super::{
    TimeZoneChanged, count,
    model::{self, KindCount},
    zones::{Zones, number},
};

pub const RANGE_TOO_LONG: Code =
    Code::new(400, "range_too_long", "The range of days is too long. Ask for fewer days.");

/// The most days that an overview covers.
const MOST_DAYS: i64 = 366;
/// How many apps of an organization are listed.
const MOST_APPS: usize = 100;

pub fn routes() -> Routes {
    Routes::new("analytics")
        .get("/analytics/app/{appId}/overview", app_analytics, "events and active users of an app")
        .answers::<Overview>(200, "application/json")
        .answers::<String>(200, "text/csv")
        .fails(&[RANGE_TOO_LONG])
        .get(
            "/analytics/org/{orgId}/overview",
            org_analytics,
            "events and active users of all apps of an organization",
        )
        .answers::<OrgOverview>(200, "application/json")
        .answers::<String>(200, "text/csv")
        .fails(&[RANGE_TOO_LONG])
        .put("/analytics/org/{orgId}/time-zone", set_time_zone, "set the time zone of an organization's days")
}

/// The metrics that count events, and the types of the audit log they count.
pub const METRICS: &[(&str, &[&str])] = &[
    ("sign_ins", &["SIGNED_IN"]),
    ("sign_in_failures", &["SIGN_IN_FAILED"]),
    ("sign_ups", &["ACCOUNT_CREATED"]),
    ("email_verifications", &["EMAIL_VERIFIED"]),
    ("mfa_enabled", &["MFA_ENABLED"]),
    ("mfa_disabled", &["MFA_DISABLED"]),
    ("passkeys_added", &["PASSKEY_ADDED"]),
    ("passkeys_removed", &["PASSKEY_REMOVED"]),
    ("password_resets", &["PASSWORD_RESET"]),
    ("magic_links", &["MAGIC_LINK_REQUESTED"]),
    ("sessions_revoked", &["SESSION_REVOKED"]),
    ("consents", &["CONSENT_GRANTED"]),
];
pub const TOTAL: &str = "total";

/// Whether an answer is wanted as a CSV file: by `Accept: text/csv`, or by `format=csv` for links.
pub struct WantsCsv(pub bool);

#[derive(Deserialize, JsonSchema)]
struct FormatQuery {
    /// `csv` answers a file, as `Accept: text/csv` does.
    #[schemars(length(max = 8))]
    format: Option<String>,
}

impl FromRequestParts<Janua> for WantsCsv {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let Query(query) = Query::<FormatQuery>::from_request_parts(parts, janua).await?;
        Ok(Self(audit::wants_csv(&parts.headers, &query.format.unwrap_or_default())))
    }
}

impl OperationInput for WantsCsv {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Query::<FormatQuery>::operation_input(ctx, operation);
    }
}

/// A CSV file with a header line.
pub fn csv(name: &str, header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Response {
    let line = |cells: Vec<String>| cells.iter().map(|text| audit::cell(text)).collect::<Vec<_>>().join(",") + "\r\n";
    let mut text = line(header.iter().map(|name| (*name).to_owned()).collect());
    text.extend(rows.into_iter().map(line));
    audit::file(text, name)
}

#[derive(Deserialize, JsonSchema)]
pub struct RangeQuery {
    /// The first day, as in `2026-01-31`. 29 days before the last one otherwise.
    #[schemars(length(max = 10))]
    pub from: Option<String>,
    /// The last day. Today otherwise.
    #[schemars(length(max = 10))]
    pub to: Option<String>,
    /// Instead of `from`: the number of days.
    #[schemars(range(min = 1, max = 3660))]
    pub days: Option<u32>,
}

/// A range of days, both included.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub from: i64,
    pub to: i64,
}

impl Range {
    pub fn read(query: &RangeQuery, zones: &Zones, now: Timestamp, most: i64) -> Result<Self> {
        let today = zones.day_of(now);
        let to = day_at("to", query.to.as_deref())?.unwrap_or(today);
        let from = match (day_at("from", query.from.as_deref())?, query.days) {
            (Some(_), Some(_)) => {
                return Err(INVALID.at("days", "not_with_from", "give the first day or the number of days"));
            }
            (Some(from), None) => from,
            (None, days) => to - i64::from(days.unwrap_or(30)) + 1,
        };
        if from > to {
            return Err(INVALID.at("from", "after_end", "must not be after the last day"));
        }
        if to - from >= most {
            return Err(RANGE_TOO_LONG.because(format!("The range may have {most} days at the most.")));
        }
        Ok(Self { from, to })
    }

    fn previous(self) -> Self {
        let length = self.to - self.from + 1;
        Self { from: self.from - length, to: self.to - length }
    }
}

/// A day as `2026-01-31`.
pub fn day_at(field: &'static str, text: Option<&str>) -> Result<Option<i64>> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    let date: Option<jiff::civil::Date> = text.parse().ok();
    let date = date.filter(|date| (1970..=9000).contains(&date.year()));
    date.map(|date| Some(number(date)))
        .ok_or_else(|| INVALID.at(field, "wrong_form", "must be a date such as 2026-01-31"))
}

#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventCounts {
    sign_ins: i64,
    sign_in_failures: i64,
    sign_ups: i64,
    email_verifications: i64,
    mfa_enabled: i64,
    mfa_disabled: i64,
    passkeys_added: i64,
    passkeys_removed: i64,
    password_resets: i64,
    magic_links: i64,
    sessions_revoked: i64,
    consents: i64,
    /// All events of the audit log.
    total: i64,
}

impl EventCounts {
    fn of(counts: &[KindCount]) -> Self {
        let of = |name: &str| {
            let kinds = METRICS.iter().find(|(metric, _)| *metric == name).map_or(&[][..], |(_, kinds)| *kinds);
            counts.iter().filter(|count| kinds.contains(&count.kind.as_str())).map(|count| count.n).sum()
        };
        Self {
            sign_ins: of("sign_ins"),
            sign_in_failures: of("sign_in_failures"),
            sign_ups: of("sign_ups"),
            email_verifications: of("email_verifications"),
            mfa_enabled: of("mfa_enabled"),
            mfa_disabled: of("mfa_disabled"),
            passkeys_added: of("passkeys_added"),
            passkeys_removed: of("passkeys_removed"),
            password_resets: of("password_resets"),
            magic_links: of("magic_links"),
            sessions_revoked: of("sessions_revoked"),
            consents: of("consents"),
            total: counts.iter().map(|count| count.n).sum(),
        }
    }

    fn named(&self) -> [(&'static str, i64); 13] {
        [
            ("signIns", self.sign_ins),
            ("signInFailures", self.sign_in_failures),
            ("signUps", self.sign_ups),
            ("emailVerifications", self.email_verifications),
            ("mfaEnabled", self.mfa_enabled),
            ("mfaDisabled", self.mfa_disabled),
            ("passkeysAdded", self.passkeys_added),
            ("passkeysRemoved", self.passkeys_removed),
            ("passwordResets", self.password_resets),
            ("magicLinks", self.magic_links),
            ("sessionsRevoked", self.sessions_revoked),
            ("consents", self.consents),
            ("total", self.total),
        ]
    }
}

/// Users who signed in or refreshed a session, each counted once, in the 1, 7 and 30 days that end with the last day.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ActiveUsers {
    daily: i64,
    weekly: i64,
    monthly: i64,
}

/// The figures of a range of days.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    from: Day,
    to: Day,
    events: EventCounts,
    /// Sign-ins by method: `pwd`, `mail`, `passkey` or a provider.
    methods: BTreeMap<String, i64>,
    active_users: ActiveUsers,
    /// Users who were seen for the first time.
    new_users: i64,
    /// Users who were seen before the range and came back in it.
    returning_users: i64,
}

impl Figures {
    async fn of(janua: &Janua, scope: &str, Range { from, to }: Range) -> Result<Self> {
        let db = &janua.db;
        let counts = model::events(db, scope, from, to).await?;
        let mut methods = BTreeMap::new();
        for count in counts.iter().filter(|count| count.kind == "SIGNED_IN" && !count.method.is_empty()) {
            *methods.entry(count.method.clone()).or_default() += count.n;
        }
        let (seen, new_users) = model::people(db, scope, from, to).await?;
        let active_users = ActiveUsers {
            daily: model::people(db, scope, to, to).await?.0,
            weekly: model::people(db, scope, to - 6, to).await?.0,
            monthly: model::people(db, scope, to - 29, to).await?.0,
        };
        let (from, to) = (Day(from), Day(to));
        let returning_users = seen - new_users;
        Ok(Self { from, to, events: EventCounts::of(&counts), methods, active_users, new_users, returning_users })
    }

    fn rows(&self) -> Vec<(String, i64)> {
        let people = [
            ("activeUsersDaily", self.active_users.daily),
            ("activeUsersWeekly", self.active_users.weekly),
            ("activeUsersMonthly", self.active_users.monthly),
            ("newUsers", self.new_users),
            ("returningUsers", self.returning_users),
        ];
        let rows = self.events.named().into_iter().chain(people);
        rows.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// When and by which days figures were counted.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counted {
    /// The time zone of the days.
    pub time_zone: String,
    /// The time zone that the days will have, and from which day on.
    pub next_time_zone: Option<NextZone>,
    pub as_of: Timestamp,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextZone {
    time_zone: String,
    from: Day,
}

impl Counted {
    pub fn at(zones: &Zones, now: Timestamp) -> Self {
        let next = zones.next(now).map(|next| NextZone { time_zone: next.zone.clone(), from: Day(next.first_day) });
        Self { time_zone: zones.zone(now).to_owned(), next_time_zone: next, as_of: now }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Overview {
    app_id: String,
    #[serde(flatten)]
    counted: Counted,
    #[serde(flatten)]
    figures: Figures,
    /// Users the app has seen and who still have an account.
    users: i64,
    /// The same number of days before.
    previous: Figures,
}

async fn app_analytics(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Query(query): Query<RangeQuery>,
    WantsCsv(is_csv): WantsCsv,
) -> Result<Response> {
    count::catch_up(&janua).await?;
    let (now, scope) = (janua.clock.now(), caller.application.id.to_string());
    let zones = Zones::of_org(&janua.db, caller.application.org_id).await?;
    let range = Range::read(&query, &zones, now, MOST_DAYS)?;
    let figures = Figures::of(&janua, &scope, range).await?;
    let previous = Figures::of(&janua, &scope, range.previous()).await?;
    if is_csv {
        return Ok(figures_csv("app-analytics", &figures, &previous));
    }
    let users = model::users(&janua.db, &scope).await?;
    let counted = Counted::at(&zones, now);
    Ok(Json(Overview { app_id: scope, counted, figures, users, previous }).into_response())
}

fn figures_csv(name: &str, figures: &Figures, previous: &Figures) -> Response {
    let rows = figures.rows().into_iter().zip(previous.rows());
    let rows = rows.map(|((metric, value), (_, before))| vec![metric, value.to_string(), before.to_string()]);
    csv(name, &["metric", "value", "previous"], rows)
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AppFigures {
    app_id: String,
    name: String,
    events: EventCounts,
    active_users: ActiveUsers,
    new_users: i64,
    users: i64,
}

impl AppFigures {
    /// Of apps by their id and name, with as many statements as for one.
    async fn of_all(db: &Db, apps: Vec<(String, String)>, Range { from, to }: Range) -> Result<Vec<Self>> {
        let ids: Vec<String> = apps.iter().map(|(id, _)| id.clone()).collect();
        let events = model::events_of_all(db, &ids, from, to).await?;
        let people = model::people_of_all(db, &ids, from, to).await?;
        let daily = model::people_of_all(db, &ids, to, to).await?;
        let weekly = model::people_of_all(db, &ids, to - 6, to).await?;
        let monthly = model::people_of_all(db, &ids, to - 29, to).await?;
        let users = model::users_of_all(db, &ids).await?;
        let figures = apps.into_iter().map(|(app_id, name)| {
            let seen = |people: &HashMap<String, (i64, i64)>| people.get(&app_id).map_or(0, |(seen, _)| *seen);
            Self {
                events: EventCounts::of(events.get(&app_id).map_or(&[][..], Vec::as_slice)),
                active_users: ActiveUsers { daily: seen(&daily), weekly: seen(&weekly), monthly: seen(&monthly) },
                new_users: people.get(&app_id).map_or(0, |(_, new)| *new),
                users: users.get(&app_id).copied().unwrap_or_default(),
                app_id,
                name,
            }
        });
        Ok(figures.collect())
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OrgOverview {
    org_id: String,
    #[serde(flatten)]
    counted: Counted,
    /// Of all apps, those that were deleted included. Users are counted once over all apps.
    #[serde(flatten)]
    figures: Figures,
    users: i64,
    previous: Figures,
    /// The newest 100 apps.
    apps: Vec<AppFigures>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfOrg {
    org_id: OrgId,
}

/// An admin of the organization of the path's `{orgId}`.
pub struct OrgAdmin(pub InOrg<Admin>);

impl FromRequestParts<Janua> for OrgAdmin {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let session = Session::from_request_parts(parts, janua).await?;
        let Path(OfOrg { org_id }) = Path::from_request_parts(parts, janua).await?;
        InOrg::reach(janua, session, org_id).await.map(Self)
    }
}

impl OperationInput for OrgAdmin {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        Path::<OfOrg>::operation_input(ctx, operation);
        may_answer(operation, &[kernel::fault::FORBIDDEN]);
        operation.extensions.insert("x-role".into(), "admin".into());
    }
}

async fn org_analytics(
    State(janua): State<Janua>,
    OrgAdmin(caller): OrgAdmin,
    Query(query): Query<RangeQuery>,
    WantsCsv(is_csv): WantsCsv,
) -> Result<Response> {
    count::catch_up(&janua).await?;
    let (now, org) = (janua.clock.now(), caller.org().id);
    let (scope, zones) = (org.to_string(), Zones::of_org(&janua.db, org).await?);
    let range = Range::read(&query, &zones, now, MOST_DAYS)?;
    let figures = Figures::of(&janua, &scope, range).await?;
    let previous = Figures::of(&janua, &scope, range.previous()).await?;
    let apps = Application::of_org(&janua.db, org).await?.into_iter().take(MOST_APPS);
    let apps = AppFigures::of_all(&janua.db, apps.map(|app| (app.id.to_string(), app.name)).collect(), range).await?;
    if is_csv {
        let row = |app: AppFigures| {
            let AppFigures { app_id, name, events, active_users: active, new_users, users } = app;
            let people = [active.daily, active.weekly, active.monthly, new_users, users];
            let numbers = events.named().into_iter().map(|(_, n)| n).chain(people);
            [app_id, name].into_iter().chain(numbers.map(|n| n.to_string())).collect()
        };
        let events = EventCounts::default().named().map(|(name, _)| name);
        let people = ["activeUsersDaily", "activeUsersWeekly", "activeUsersMonthly", "newUsers", "users"];
        let header: Vec<&str> = ["appId", "name"].into_iter().chain(events).chain(people).collect();
        return Ok(csv("org-analytics", &header, apps.into_iter().map(row)));
    }
    let users = model::users(&janua.db, &scope).await?;
    let counted = Counted::at(&zones, now);
    Ok(Json(OrgOverview { org_id: scope, counted, figures, users, previous, apps }).into_response())
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewZone {
    /// As in `Europe/Zurich`; `UTC` for none.
    #[schemars(length(min = 1, max = 64))]
    time_zone: String,
}

async fn set_time_zone(
    State(janua): State<Janua>,
    OrgAdmin(caller): OrgAdmin,
    Json(NewZone { time_zone }): Json<NewZone>,
) -> Result<Json<Counted>> {
    if !is_time_zone(&time_zone) {
        return Err(INVALID.at("timeZone", "unknown_time_zone", "must be a time zone such as Europe/Zurich"));
    }
    let org = caller.org().id;
    let counted = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let (now, zones) = (janua.clock.now(), Zones::of_org(&mut *tx, org).await?);
        let mut current = Zones(zones.0.into_iter().filter(|change| change.since <= now).collect());
        let change = current.change_to(&time_zone, now);
        let is_same = current.zone(now) == time_zone;
        model::set_zone(tx, org, &change, now).await?;
        if !is_same {
            caller.record(tx, &janua, &TimeZoneChanged { time_zone: time_zone.clone() }).await?;
        }
        tx.notify(Reach::EveryNode, super::ZONES, "").await?;
        current.0.push(change);
        Ok(Counted::at(&current, now))
    })?;
    Ok(Json(counted))
}
