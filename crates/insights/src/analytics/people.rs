//! The people of an app: who does most, and how far they come in funnels.
use std::collections::HashMap;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::{Day, Timestamp},
    fault::Result,
    http::{Json, Key, Listed, Page, Query, Routes, Scope},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::end_users::EndUser,
    enter::{Admin, InApp},
    ids::{AccountId, ApplicationId},
};

use super::{
    api::{Counted, RANGE_TOO_LONG, Range, RangeQuery, WantsCsv, csv, day_at},
    count,
    funnels::{Funnel, WINDOWS},
    model::{self, Top},
    zones::{Zones, month_of, week_of},
};

const MOST_DAYS: i64 = 366;
/// How many users a file has at the most, and how many are read at a time.
const MOST_IN_FILE: usize = 10_000;
const AT_A_TIME: u32 = 500;

pub fn routes() -> Routes {
    Routes::new("analytics")
        .get(
            "/analytics/app/{appId}/top-users",
            top_users,
            "users of an app with the most events in a day, week or month",
        )
        .answers::<TopUsers>(200, "application/json")
        .answers::<String>(200, "text/csv")
        .get("/analytics/app/{appId}/funnels", funnel, "how many users reach each step of a funnel")
        .answers::<FunnelView>(200, "application/json")
        .answers::<String>(200, "text/csv")
        .fails(&[RANGE_TOO_LONG])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Period {
    Day,
    Week,
    #[default]
    Month,
}

#[derive(Deserialize, JsonSchema)]
struct TopQuery {
    period: Option<Period>,
    /// A day of the period. Today otherwise.
    #[schemars(length(max = 10))]
    date: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TopUser {
    id: String,
    /// Null where the user does not share it with the app.
    email: Option<String>,
    name: Option<String>,
    events: i64,
    last_event_at: Timestamp,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TopUsers {
    period: Period,
    /// The first day of the period.
    from: Day,
    #[serde(flatten)]
    counted: Counted,
    users: Vec<TopUser>,
    next_cursor: Option<String>,
}

async fn top_users(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Query(query): Query<TopQuery>,
    page: Page,
    WantsCsv(is_csv): WantsCsv,
) -> Result<Response> {
    count::catch_up(&janua).await?;
    let (now, app) = (janua.clock.now(), &caller.application);
    let zones = Zones::of_org(&janua.db, app.org_id).await?;
    let day = day_at("date", query.date.as_deref())?.unwrap_or_else(|| zones.day_of(now));
    let period = query.period.unwrap_or_default();
    let (name, since) = match period {
        Period::Day => ("d", day),
        Period::Week => ("w", week_of(day)),
        Period::Month => ("m", month_of(day)),
    };
    // The number of events stands for the moment of a list by time.
    let fetch =
        async |below: Key, most| model::top(&janua.db, app.id, (name, since), (below.at.0, &below.id), most).await;
    let key = |one: &Top| Key { at: Timestamp(one.events), id: one.account_id.to_string() };
    if is_csv {
        let mut rows = vec![];
        let mut below = Key { at: Timestamp(i64::MAX), id: String::new() };
        while rows.len() < MOST_IN_FILE {
            let found = fetch(below, AT_A_TIME).await?;
            let is_last = found.len() < AT_A_TIME as usize;
            let Some(last) = found.last() else { break };
            below = key(last);
            rows.extend(named(&janua, app.id, found).await?);
            if is_last {
                break;
            }
        }
        let rows = rows.into_iter().map(|user| {
            let text = Option::unwrap_or_default;
            vec![user.id, text(user.email), text(user.name), user.events.to_string(), user.last_event_at.to_string()]
        });
        return Ok(csv("top-users", &["id", "email", "name", "events", "lastEventAt"], rows));
    }
    let scope = Scope::from(app.id).found_by(&format!("{name}{since}"));
    let Listed { rows, next_cursor } = page.list(&janua, "top-users", scope, fetch, key).await?;
    let users = named(&janua, app.id, rows).await?;
    let (from, counted) = (Day(since), Counted::at(&zones, now));
    Ok(Json(TopUsers { period, from, counted, users, next_cursor }).into_response())
}

/// The users with their names, where they share them with the app.
async fn named(janua: &Janua, app: ApplicationId, rows: Vec<Top>) -> Result<Vec<TopUser>> {
    let accounts: Vec<AccountId> = rows.iter().map(|one| one.account_id).collect();
    let known = EndUser::find_all(&janua.db, app, &accounts).await?;
    let mut known: HashMap<AccountId, EndUser> = known.into_iter().map(|user| (user.id, user)).collect();
    let users = rows.into_iter().map(|Top { account_id, events, last_at }| {
        let (email, name) = known.remove(&account_id).map(|user| (user.email, user.name)).unwrap_or_default();
        let name = Some(name).filter(|name| !name.is_empty());
        TopUser { id: account_id.to_string(), email, name, events, last_event_at: last_at }
    });
    Ok(users.collect())
}

#[derive(Deserialize, JsonSchema)]
struct FunnelQuery {
    funnel: Option<Funnel>,
    window: Option<Window>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
enum Window {
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "1d")]
    Day,
    #[serde(rename = "7d")]
    #[default]
    Week,
    #[serde(rename = "30d")]
    Month,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Step {
    name: &'static str,
    users: i64,
    /// The share of those who reached the step before; of a step that not everybody is asked for, and of the one after it, of
    /// the one before both.
    of_previous: Option<f64>,
    of_first: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
struct FunnelView {
    funnel: Funnel,
    /// The time from the first step within which a step counts.
    window: Window,
    #[serde(flatten)]
    counted: Counted,
    from: Day,
    to: Day,
    steps: Vec<Step>,
}

async fn funnel(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Query(range): Query<RangeQuery>,
    Query(query): Query<FunnelQuery>,
    WantsCsv(is_csv): WantsCsv,
) -> Result<Response> {
    count::catch_up(&janua).await?;
    let (now, app) = (janua.clock.now(), &caller.application);
    let zones = Zones::of_org(&janua.db, app.org_id).await?;
    let range = Range::read(&range, &zones, now, MOST_DAYS)?;
    let (funnel, window) = (query.funnel.unwrap_or(Funnel::SignUp), query.window.unwrap_or_default());
    let within = [Window::Hour, Window::Day, Window::Week, Window::Month].iter().position(|one| *one == window);
    let within = within.unwrap_or(WINDOWS.len() - 1);
    let users = model::funnel(&janua.db, app.id, funnel, (range.from, range.to), within).await?;
    let steps: Vec<Step> = (0..users.len()).map(|at| step(funnel, &users, at)).collect();
    if is_csv {
        let share = |share: Option<f64>| share.map(|share| format!("{share:.4}")).unwrap_or_default();
        let rows = steps.iter().map(|step| {
            vec![step.name.to_owned(), step.users.to_string(), share(step.of_previous), share(step.of_first)]
        });
        return Ok(csv("funnel", &["step", "users", "ofPrevious", "ofFirst"], rows));
    }
    let (from, to, counted) = (Day(range.from), Day(range.to), Counted::at(&zones, now));
    Ok(Json(FunnelView { funnel, window, counted, from, to, steps }).into_response())
}

fn step(funnel: Funnel, users: &[i64], at: usize) -> Step {
    let before = (0..at).rev().find(|before| !funnel.is_optional(*before));
    let share = |of: Option<usize>| of.and_then(|of| share(users[at], users[of]));
    Step { name: funnel.steps()[at], users: users[at], of_previous: share(before), of_first: share(Some(0)) }
}

/// A part of a whole, with four digits; none of nothing.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn share(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64 * 10_000.0).round() / 10_000.0)
}
