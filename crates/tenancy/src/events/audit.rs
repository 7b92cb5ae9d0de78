//! Reading the audit log: of a user, an organization, an app or the platform, filtered, as JSON or as CSV.
use std::fmt::Write as _;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use db::{Db, FromRow, Row, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, INVALID, Result},
    http::{GenContext, Json, Key, Listed, Operation, OperationInput, Page, Query, Scope},
    telemetry::{MOST_STEPS, StepKind, TraceStep},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AccountId, ApplicationId, EventId, OrgId};

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// The user or the app key that did it; null for what happened before sign-in, by SCIM or by the system.
    pub actor: Option<String>,
    /// The name of that user or key, where the reader may know it.
    pub actor_name: Option<String>,
    pub target: Option<String>,
    pub org_id: Option<String>,
    pub app_id: Option<String>,
    pub ip: Option<String>,
    pub user_agent: Option<String>,
    pub at: Timestamp,
    /// The request in which it happened, for questions to the operator.
    pub request_id: Option<String>,
    pub details: serde_json::Map<String, serde_json::Value>,
}

impl FromRow for AuditEntry {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let details: serde_json::Value = row.get("details")?;
        Ok(Self {
            id: row.get("id")?,
            kind: row.get("type")?,
            actor: row.get("actor")?,
            actor_name: row.get("actor_name")?,
            target: row.get("target")?,
            org_id: row.get("org_id")?,
            app_id: row.get("app_id")?,
            ip: row.get("ip")?,
            user_agent: row.get("user_agent")?,
            at: row.get("at")?,
            request_id: row.get("request_id")?,
            details: details.as_object().cloned().unwrap_or_default(),
        })
    }
}

/// A page of an audit log.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditLog {
    pub events: Vec<AuditEntry>,
    pub next_cursor: Option<String>,
}

/// The events that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFilter {
    since: Timestamp,
    until: Timestamp,
    /// Empty for all types.
    kind: String,
    /// Empty for all users.
    actor: String,
    /// A pattern of LIKE, or empty.
    pattern: String,
}

impl Default for AuditFilter {
    fn default() -> Self {
        let (since, until) = (Timestamp(0), Timestamp(i64::MAX));
        Self { since, until, kind: String::new(), actor: String::new(), pattern: String::new() }
    }
}

/// The columns of an entry and the filter, around the scope of a list. `$1` is the scope, `$2` and `$3` are the key.
macro_rules! entries {
    ($name:literal, $address:literal, $scope:literal) => {
        concat!(
            "SELECT e.id, e.type, e.actor, e.target, e.org_id, e.app_id, e.at, e.request_id, e.details, ",
            $name,
            " AS actor_name, ",
            $address,
            " FROM audit_event e LEFT JOIN account who ON who.id = e.actor LEFT JOIN app_key k ON k.id = e.actor WHERE ",
            $scope,
            " AND (e.at, e.id) < ($2, $3) AND e.at >= $4 AND e.at < $5 AND ($6 = '' OR e.type = $6)
              AND ($7 = '' OR e.actor = $7)
              AND ($8 = '' OR LOWER(REPLACE(e.type, '_', ' ')) LIKE $8 ESCAPE '!' OR LOWER(e.details) LIKE $8 ESCAPE '!'
                   OR LOWER(e.ip) LIKE $8 ESCAPE '!' OR LOWER(",
            $name,
            ") LIKE $8 ESCAPE '!')
              ORDER BY e.at DESC, e.id DESC LIMIT $9"
        )
    };
}

struct TracedEvent {
    id: String,
    kind: String,
    actor: Option<String>,
    target: Option<String>,
    org_id: Option<String>,
    app_id: Option<String>,
    at: Timestamp,
}
row!(TracedEvent { id, kind, actor, target, org_id, app_id, at });

/// The events of a request, oldest first.
pub async fn of_request(db: &Db, request: &str) -> db::Result<Vec<TraceStep>> {
    let sql = "SELECT id, type AS kind, actor, target, org_id, app_id, at FROM audit_event
               WHERE request_id = $1 ORDER BY id LIMIT $2";
    let events: Vec<TracedEvent> = db.all(sql, params![request, MOST_STEPS]).await?;
    let step = |event: TracedEvent| {
        TraceStep::new(StepKind::Event, event.id, event.at, event.kind)
            .with("actor", event.actor)
            .with("target", event.target)
            .with("orgId", event.org_id)
            .with("appId", event.app_id)
    };
    Ok(events.into_iter().map(step).collect())
}

impl AuditEntry {
    pub fn key(&self) -> Key {
        Key { at: self.at, id: self.id.clone() }
    }

    /// The events of a user. The IP address and device of another actor are left out; the actor's name is shown, for
    /// acts in an organization of the user.
    pub async fn of_person(
        db: &Db,
        account: AccountId,
        filter: &AuditFilter,
        below: &Key,
        most: u32,
    ) -> db::Result<Vec<Self>> {
        let sql = entries!(
            "CASE WHEN e.actor = e.account_id OR e.org_id IS NOT NULL THEN COALESCE(who.name, 'Key ' || COALESCE(k.name, k.prefix)) END",
            "CASE WHEN e.actor IS NULL OR e.actor = e.account_id THEN e.ip END AS ip,
             CASE WHEN e.actor IS NULL OR e.actor = e.account_id THEN e.user_agent END AS user_agent",
            "e.account_id = $1"
        );
        let AuditFilter { since, until, kind, actor, pattern } = filter;
        db.all(sql, params![account, below.at, &below.id, *since, *until, kind, actor, pattern, most]).await
    }

    pub async fn of_org(db: &Db, org: OrgId, filter: &AuditFilter, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let sql = entries!(
            "COALESCE(who.name, 'Key ' || COALESCE(k.name, k.prefix))",
            "e.ip, e.user_agent",
            "e.org_id = $1"
        );
        let AuditFilter { since, until, kind, actor, pattern } = filter;
        db.all(sql, params![org, below.at, &below.id, *since, *until, kind, actor, pattern, most]).await
    }

    /// The events of an app. Names are those of members of its organization: what an end user lets the app know is in the
    /// list of its users.
    pub async fn of_app(
        db: &Db,
        app: ApplicationId,
        filter: &AuditFilter,
        below: &Key,
        most: u32,
    ) -> db::Result<Vec<Self>> {
        let sql = entries!(
            "CASE WHEN EXISTS (SELECT 1 FROM org_member m JOIN app a ON a.org_id = m.org_id
                               WHERE a.id = $1 AND m.account_id = e.actor) THEN who.name
                  ELSE 'Key ' || COALESCE(k.name, k.prefix) END",
            "e.ip, e.user_agent",
            "e.app_id = $1 AND (e.org_id IS NULL OR e.org_id = (SELECT a.org_id FROM app a WHERE a.id = $1))"
        );
        let AuditFilter { since, until, kind, actor, pattern } = filter;
        db.all(sql, params![app, below.at, &below.id, *since, *until, kind, actor, pattern, most]).await
    }

    /// All events. They are read by their ids, which are in the order of time.
    pub async fn of_platform(db: &Db, filter: &AuditFilter, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT e.id, e.type, e.actor, e.target, e.org_id, e.app_id, e.at, e.request_id, e.details,
                          COALESCE(who.name, 'Key ' || COALESCE(k.name, k.prefix)) AS actor_name, e.ip, e.user_agent
                   FROM audit_event e LEFT JOIN account who ON who.id = e.actor LEFT JOIN app_key k ON k.id = e.actor
                   WHERE e.id < $1 AND e.id >= $2 AND e.id < $3 AND ($4 = '' OR e.type = $4)
                     AND ($5 = '' OR e.actor = $5)
                     AND ($6 = '' OR LOWER(REPLACE(e.type, '_', ' ')) LIKE $6 ESCAPE '!'
                          OR LOWER(e.details) LIKE $6 ESCAPE '!' OR LOWER(e.ip) LIKE $6 ESCAPE '!'
                          OR LOWER(who.name) LIKE $6 ESCAPE '!')
                   ORDER BY e.id DESC LIMIT $7";
        let AuditFilter { since, until, kind, actor, pattern } = filter;
        let until = if until.0 == i64::MAX { "~".to_owned() } else { EventId::first_of(*until).to_string() };
        let since = EventId::first_of(*since).to_string();
        db.all(sql, params![&below.id, since, until, kind, actor, pattern, most]).await
    }
}

#[derive(Deserialize, JsonSchema)]
struct AuditQuery {
    /// Only events of this type, such as `SIGNED_IN`.
    #[serde(rename = "type")]
    #[schemars(length(max = 64))]
    kind: Option<String>,
    /// Only events of the user with this ID.
    #[schemars(length(max = 64))]
    actor: Option<String>,
    /// Only events from this day or moment on.
    #[schemars(length(max = 40))]
    since: Option<String>,
    /// Only events up to the end of this day, or before this moment.
    #[schemars(length(max = 40))]
    until: Option<String>,
    /// Only events with this text in their type, name, IP address or details.
    #[schemars(length(max = 100))]
    search: Option<String>,
    /// `csv` answers the newest 10,000 events as a file, as `Accept: text/csv` does.
    #[schemars(length(max = 8))]
    format: Option<String>,
}

/// The filter of a request, and the form its answer is wanted in.
pub struct AuditRequest {
    pub filter: AuditFilter,
    is_csv: bool,
    /// The filter as it was sent: a cursor counts for the same filter alone.
    text: String,
}

/// A day or a moment; a day that ends a range is part of it.
fn moment(field: &'static str, text: &str, is_end: bool) -> Result<Timestamp> {
    let wrong = || INVALID.at(field, "wrong_form", "must be a date such as 2026-01-31");
    let is_day = text.len() == "2026-01-31".len();
    let whole = if is_day { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let found: Timestamp = serde_json::from_value(whole.into()).map_err(|_| wrong())?;
    if found.0 < 0 {
        return Err(wrong());
    }
    Ok(if is_day && is_end { Timestamp(found.0.saturating_add(Timestamp::DAY_MS)) } else { found })
}

/// Whether a CSV file is wanted: by the query, or by the first type that the client accepts.
pub fn wants_csv(headers: &HeaderMap, format: &str) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    format == "csv" || accept.split(',').next().is_some_and(|first| first.trim().starts_with("text/csv"))
}

impl FromRequestParts<Janua> for AuditRequest {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let Query(query) = Query::<AuditQuery>::from_request_parts(parts, janua).await?;
        let given = |field: Option<String>| field.map(|text| text.trim().to_owned()).unwrap_or_default();
        let [kind, actor, since, until, search] =
            [query.kind, query.actor, query.since, query.until, query.search].map(given);
        let mut filter = AuditFilter { kind: kind.clone(), actor: actor.clone(), ..AuditFilter::default() };
        if !since.is_empty() {
            filter.since = moment("since", &since, false)?;
        }
        if !until.is_empty() {
            filter.until = moment("until", &until, true)?;
        }
        if !search.is_empty() {
            let plain = search.to_lowercase().replace('!', "!!").replace('%', "!%").replace('_', "!_");
            filter.pattern = format!("%{plain}%");
        }
        let text = [kind, actor, since, until, search].join("\n");
        Ok(Self { filter, is_csv: wants_csv(&parts.headers, &given(query.format)), text })
    }
}

impl OperationInput for AuditRequest {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Query::<AuditQuery>::operation_input(ctx, operation);
    }
}

/// How many events a file has at the most, and how many are read at a time.
const MOST_IN_FILE: u32 = 10_000;
const AT_A_TIME: u32 = 1000;

/// Whose events a log has.
#[derive(Debug, Clone, Copy)]
pub enum LogOf {
    Person(AccountId),
    Org(OrgId),
    App(ApplicationId),
    Platform,
}

impl LogOf {
    /// The name of the list, which is also that of its file.
    fn name(self) -> &'static str {
        match self {
            Self::Person(_) => "audit-log",
            Self::Org(_) => "org-audit-log",
            Self::App(_) => "app-audit-log",
            Self::Platform => "platform-audit-log",
        }
    }

    fn scope(self) -> Scope {
        match self {
            Self::Person(account) => account.into(),
            Self::Org(org) => org.into(),
            Self::App(app) => app.into(),
            Self::Platform => Scope::platform(),
        }
    }

    async fn read(self, db: &Db, filter: &AuditFilter, below: &Key, most: u32) -> db::Result<Vec<AuditEntry>> {
        match self {
            Self::Person(account) => AuditEntry::of_person(db, account, filter, below, most).await,
            Self::Org(org) => AuditEntry::of_org(db, org, filter, below, most).await,
            Self::App(app) => AuditEntry::of_app(db, app, filter, below, most).await,
            Self::Platform => AuditEntry::of_platform(db, filter, below, most).await,
        }
    }
}

impl AuditRequest {
    /// Answers one page of a log, or the file.
    pub async fn answer(&self, janua: &Janua, page: &Page, log: LogOf) -> Result<Response> {
        if self.is_csv {
            return Ok(file(self.read_all(&janua.db, log).await?, log.name()));
        }
        let is_whole = self.filter == AuditFilter::default();
        let scope = if is_whole { log.scope() } else { log.scope().found_by(&self.text) };
        let fetch = async |below, most| log.read(&janua.db, &self.filter, &below, most).await;
        let Listed { rows, next_cursor } = page.list(janua, log.name(), scope, fetch, AuditEntry::key).await?;
        Ok(Json(AuditLog { events: rows, next_cursor }).into_response())
    }

    async fn read_all(&self, db: &Db, log: LogOf) -> Result<String> {
        let mut csv = "time,type,actor,actor_id,target,org_id,app_id,ip,user_agent,details\r\n".to_owned();
        let (mut below, mut left) = (Key::newest(), MOST_IN_FILE);
        while left > 0 {
            let rows = log.read(db, &self.filter, &below, AT_A_TIME.min(left)).await?;
            let count = u32::try_from(rows.len()).unwrap_or(left);
            for row in &rows {
                write_row(&mut csv, row);
            }
            match rows.last() {
                Some(last) if count == AT_A_TIME => below = last.key(),
                _ => break,
            }
            left -= count.min(left);
        }
        Ok(csv)
    }
}

fn write_row(csv: &mut String, entry: &AuditEntry) {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let details = serde_json::to_string(&entry.details).unwrap_or_default();
    let fields = [
        entry.at.to_string(),
        entry.kind.clone(),
        text(&entry.actor_name),
        text(&entry.actor),
        text(&entry.target),
        text(&entry.org_id),
        text(&entry.app_id),
        text(&entry.ip),
        text(&entry.user_agent),
        if entry.details.is_empty() { String::new() } else { details },
    ];
    let fields: Vec<_> = fields.iter().map(|field| cell(field)).collect();
    let _ = write!(csv, "{}\r\n", fields.join(","));
}

/// A quoted cell of a CSV file. A spreadsheet takes text that begins with one of these signs for a formula, so it gets an apostrophe.
pub fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    format!("\"{}{}\"", if is_formula { "'" } else { "" }, text.replace('"', "\"\""))
}

/// The answer with a CSV file.
pub fn file(csv: String, name: &str) -> Response {
    let mut response = csv.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
    if let Ok(name) = HeaderValue::try_from(format!("attachment; filename=\"{name}.csv\"")) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_never_a_formula() {
        for (text, expected) in [
            ("=1+1", "\"'=1+1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("-2", "\"'-2\""),
            ("+3", "\"'+3\""),
            ("a \"b\", c", "\"a \"\"b\"\", c\""),
            ("Ada", "\"Ada\""),
        ] {
            assert_eq!(cell(text), expected);
        }
    }

    #[test]
    fn a_range_of_days_has_its_last_day() {
        let day = moment("until", "2026-01-31", true).expect("a day");
        assert_eq!(day.to_string(), "2026-02-01T00:00:00.000Z");
        assert_eq!(moment("since", "2026-01-31", false).expect("a day").to_string(), "2026-01-31T00:00:00.000Z");
        for wrong in ["31.1.2026", "yesterday", "1969-12-31"] {
            assert!(moment("since", wrong, false).is_err(), "{wrong}");
        }
    }
}

/// Something that happened to a person in an app, as the app's admins see it: neither how the person signs in to the
/// service nor what they do elsewhere.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppActivity {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// The account that did it.
    pub actor: Option<String>,
    pub ip: Option<String>,
    pub user_agent: Option<String>,
    pub at: Timestamp,
}

impl FromRow for AppActivity {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            kind: row.get("type")?,
            actor: row.get("actor")?,
            ip: row.get("ip")?,
            user_agent: row.get("user_agent")?,
            at: row.get("at")?,
        })
    }
}

impl AppActivity {
    /// The newest 50.
    pub async fn of(db: &Db, app: ApplicationId, account: AccountId) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT id, type, actor, at, CASE WHEN actor IS NULL OR actor = account_id THEN ip END AS ip,
                    CASE WHEN actor IS NULL OR actor = account_id THEN user_agent END AS user_agent
             FROM audit_event
             WHERE account_id = $1 AND app_id = $2
               AND type IN ('SIGNED_IN', 'SIGN_IN_FAILED', 'SESSION_REVOKED', 'CONSENT_GRANTED', 'CONSENT_REVOKED',
                            'PROFILE_UPDATED', 'USER_BLOCKED', 'USER_UNBLOCKED')
             ORDER BY at DESC, id DESC LIMIT 50",
            params![account, app],
        )
        .await
    }
}
