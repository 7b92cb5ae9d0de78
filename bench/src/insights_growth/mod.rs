//! Analytics of an app with many users and events, beside one with a thousand users of the same habits: overviews, series, the
//! users who do most, funnels; and what counting adds to a sign-in and to a refresh.
mod counting;
mod seed;
mod visits;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use kernel::clock::Day;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::{
    seed::{Writer, month_of},
    visits::{LEAST, Year},
};
use crate::{
    client::{Who, ask, text},
    figure::{Figure, Goal, Unit},
    ground::Ground,
    growth::{Cost, thousands},
    identity::login,
    process::{Core, Server},
    rounds::Rounds,
    servers::JanuaBinary,
    sizes::{self, Asked, DAY, SERVER, get, now},
};

const FEW: u64 = 1_000;
/// Milliseconds, and times that among few.
const MOST: Goal = Goal::Below(5.0);
const TIMES: Goal = Goal::RatioAtMost(1.25);

#[derive(clap::Args)]
pub struct Options {
    /// How many users the app has
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(100..))]
    users: u64,
    /// How many events they had in a year
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    events: u64,
    /// Where the data folders are, or are created and kept [default: new ones, deleted at the end]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

/// What is in a folder.
#[derive(Serialize, Deserialize)]
struct Note {
    users: u64,
    events: u64,
    /// The day after the last one of the year.
    today: i64,
    app: String,
    org: String,
    /// A publishable key of the app.
    key: String,
}

/// A server with an app of so many users.
struct Place {
    server: Server,
    folder: PathBuf,
    year: Year,
    users: u64,
    app: String,
    org: String,
    key: String,
    /// The owner's session.
    token: String,
}

pub fn measure(rounds: &Rounds, janua: &JanuaBinary, options: &Options) -> Result<Vec<Figure>> {
    let settle = |users: u64, events: u64| -> Result<(PathBuf, Note)> {
        let folder = sizes::folder(rounds, options.data.as_deref(), &format!("insights-{users}-{events}"))?;
        let note = sizes::filled(&folder, |folder| fill(janua, folder, users, events))?;
        Ok((folder, note))
    };
    // As many for each user.
    let events = u64::try_from(u128::from(options.events) * u128::from(FEW) / u128::from(options.users))?;
    let (few, many) = (settle(FEW, events)?, settle(options.users, options.events)?);
    let (few, many) = (Place::serve(janua, few)?, Place::serve(janua, many)?);
    few.check().context("among few users")?;
    many.check().context("among many users")?;
    rustix::fs::sync();
    let mut figures = vec![];
    for question in QUESTIONS {
        let asked = |app| asked(app, &(question.paths)(app));
        let sides = sizes::ask_both(rounds, question.name, asked(&few), asked(&many))?;
        let figure = |what: &str, unit, pick: fn(&Cost) -> f64, goal| {
            let (many, few) = (thousands(many.users), thousands(few.users));
            let what: &'static str = format!("{what} among {many} users; among {few}").leak();
            Figure { scenario: question.name, what, unit, samples: sides.only(pick), goal }
        };
        figures.push(figure("p50", Unit::Milliseconds, |cost| cost.p50_ms, Some(MOST)));
        figures.push(figure("p50, as a ratio,", Unit::Microseconds, |cost| cost.p50_ms * 1e3, Some(TIMES)));
        figures.push(figure("processor time", Unit::Microseconds, |cost| cost.cpu_us, None));
    }
    drop(few);
    figures.extend(counting::measure(rounds, &many)?);
    Ok(figures)
}

fn fill(janua: &JanuaBinary, folder: &Path, users: u64, events: u64) -> Result<Note> {
    let year = Year::new(now()?.div_euclid(DAY), users, events);
    let least = year.visits * LEAST;
    ensure!(events >= least, "{users} users need at least {least} events");
    let ground = Ground::lay(janua, folder, Core::Any, &[("JANUA_RATE_LIMITS", "off")])?;
    let wanted = json!({ "type": "publishable", "environment": "live" });
    let key = text(&ground.asks("POST", &format!("/apps/{}/keys", ground.app), &wanted)?, "value")?;
    let Ground { server, org, app, .. } = ground;
    // The server closes its file.
    drop(server);
    let writer = Writer { app, org, year };
    seed::fill(folder, &writer)?;
    let Writer { app, org, .. } = writer;
    Ok(Note { users, events, today: year.today, app, org, key })
}

fn asked<'a>(app: &'a Place, paths: &[String]) -> Asked<'a> {
    Asked { server: &app.server, requests: paths.iter().map(|path| get(path, &app.token)).collect() }
}

struct Question {
    name: &'static str,
    paths: fn(&Place) -> Vec<String>,
}

const QUESTIONS: &[Question] = &[
    Question { name: "overview", paths: |app| vec![app.path("overview", 30, "")] },
    Question { name: "overview, year", paths: |app| vec![app.path("overview", 365, "")] },
    Question {
        name: "series",
        paths: |app| {
            let days = "&metric=sign_ins,sign_in_failures,active_users,new_users";
            vec![app.path("timeseries", 30, days), app.path("timeseries", 7, "&interval=hour&metric=sign_ins,total")]
        },
    },
    Question {
        name: "series, year",
        paths: |app| {
            let of = |interval| format!("&interval={interval}&metric=sign_ins,active_users,returning_users");
            ["week", "month"].map(|interval| app.path("timeseries", 365, &of(interval))).into()
        },
    },
    Question { name: "top users", paths: |app| ["day", "week", "month"].map(|period| app.top(period)).into() },
    Question {
        name: "funnels",
        paths: |app| visits::FUNNELS.map(|funnel| app.path("funnels", 30, &format!("&funnel={funnel}"))).into(),
    },
    Question {
        name: "funnels, year",
        paths: |app| visits::FUNNELS.map(|funnel| app.path("funnels", 365, &format!("&funnel={funnel}"))).into(),
    },
    Question {
        name: "organization",
        paths: |app| vec![format!("/analytics/org/{}/overview?{}", app.org, app.days(30))],
    },
];

impl Place {
    fn serve(janua: &JanuaBinary, (folder, note): (PathBuf, Note)) -> Result<Self> {
        let server = janua.serve(&folder, SERVER)?;
        let token = text(&ask(server.address, "POST", "/auth/login", &Who::default(), &login())?, "accessToken")?;
        let Note { users, events, today, app, org, key } = note;
        Ok(Self { server, folder, year: Year::new(today, users, events), users, app, org, key, token })
    }

    /// The last days of the year.
    fn days(&self, count: i64) -> String {
        format!("from={}&to={}", Day(self.year.today - count), Day(self.year.today - 1))
    }

    fn path(&self, what: &str, days: i64, rest: &str) -> String {
        format!("/analytics/app/{}/{what}?{}{rest}", self.app, self.days(days))
    }

    fn top(&self, period: &str) -> String {
        format!("/analytics/app/{}/top-users?period={period}&date={}", self.app, Day(self.year.today - 1))
    }

    fn asks(&self, path: &str) -> Result<Value> {
        ask(self.server.address, "GET", path, &Who::with(&self.token), &Value::Null)
    }

    /// The answers are those of a recount of all visits.
    fn check(&self) -> Result<()> {
        let year = self.year;
        let (mut active, mut visits_of_month) = (0_u64, 0_u64);
        let (from, month) = (year.today - 30, month_of(year.today - 1));
        let mut events_of_month: HashMap<u64, u64> = HashMap::new();
        let mut last_active = 0;
        for (visit, events) in year.all() {
            if visit.day >= month {
                *events_of_month.entry(visit.user).or_default() += events;
            }
            if visit.day >= from {
                visits_of_month += 1;
                active += u64::from(last_active != visit.user);
                last_active = visit.user;
            }
        }
        let equal = |what: &str, answer: &Value, wanted: u64| -> Result<()> {
            ensure!(answer.as_u64() == Some(wanted), "{what}: {answer} instead of {wanted}");
            Ok(())
        };
        let of_year = self.asks(&self.path("overview", 365, ""))?;
        equal("events of the year", &of_year["events"]["total"], year.events)?;
        equal("new users of the year", &of_year["newUsers"], year.users)?;
        // And the owner.
        equal("users", &of_year["users"], year.users + 1)?;
        equal("active users of 30 days", &of_year["activeUsers"]["monthly"], active)?;
        let org = self.asks(&format!("/analytics/org/{}/overview?{}", self.org, self.days(30)))?;
        equal("active users of the organization", &org["activeUsers"]["monthly"], active)?;
        let series = self.asks(&self.path("timeseries", 30, "&metric=active_users"))?;
        let points = series["series"][0]["points"].as_array().context("no points")?;
        let sum: u64 = points.iter().filter_map(|point| point["value"].as_u64()).sum();
        equal("active users by day", &sum.into(), visits_of_month)?;
        let top = self.asks(&self.top("month"))?;
        let most = events_of_month.values().copied().max().unwrap_or(0);
        equal("events of the first user", &top["users"][0]["events"], most)?;
        ensure!(top["users"][0]["email"].is_string(), "the first user has no email");
        let funnel = self.asks(&self.path("funnels", 365, "&funnel=sign_up"))?;
        equal("users who began", &funnel["steps"][0]["users"], year.users)
    }
}
