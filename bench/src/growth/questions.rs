//! What is asked of each size. The askers and what they ask for are scattered over all that is there.
use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    client::{self, Who, ask, text},
    figure::Goal,
    identity::{PASSWORD, login},
    load::Ask,
    seed::{Seeded, User},
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Question {
    SignIn,
    Me,
    Refresh,
    App,
    Sessions,
    AuditLog,
    Members,
    Users,
    DirectoryOne,
    DirectoryPage,
    NameSearch,
}

impl Question {
    pub const ALL: [Self; 11] = [
        Self::SignIn,
        Self::Me,
        Self::Refresh,
        Self::App,
        Self::Sessions,
        Self::AuditLog,
        Self::Members,
        Self::Users,
        Self::DirectoryOne,
        Self::DirectoryPage,
        Self::NameSearch,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::SignIn => "sign-in",
            Self::Me => "me",
            Self::Refresh => "refresh",
            Self::App => "one app",
            Self::Sessions => "sessions",
            Self::AuditLog => "audit log",
            Self::Members => "members",
            Self::Users => "users",
            Self::DirectoryOne => "scim one",
            Self::DirectoryPage => "scim page",
            Self::NameSearch => "search",
        }
    }

    pub fn goal(self) -> Goal {
        match self {
            Self::SignIn => Goal::RatioAtMost(1.03),
            Self::Me => Goal::RatioAtMost(1.05),
            Self::Refresh
            | Self::App
            | Self::Sessions
            | Self::AuditLog
            | Self::Members
            | Self::Users
            | Self::DirectoryOne => Goal::RatioAtMost(1.2),
            Self::DirectoryPage => Goal::RatioAtMost(1.3),
            // Milliseconds.
            Self::NameSearch => Goal::Below(10.0),
        }
    }

    /// One at a time, so that what is measured is the answer and not the queue. Refreshing is a chain for each session.
    pub fn connections(self) -> usize {
        if self == Self::Refresh { CHAINS } else { 1 }
    }

    /// What is measured in one go before another size has its turn. What a neighbour of the machine does lasts for longer,
    /// and then falls on all sizes; but a sign-in takes long, and refreshing begins with signing in.
    pub fn slice(self) -> Duration {
        Duration::from_millis(if matches!(self, Self::SignIn | Self::Refresh) { 500 } else { 100 })
    }

    /// A sign-in takes so long that a turn has a few dozen. The slowest hundredth needs hundreds.
    pub fn turns(self) -> usize {
        if self == Self::SignIn { 4 } else { 1 }
    }
}

const CHAINS: usize = 4;
/// How many people are signed in from the start.
const PEOPLE: u64 = 32;
/// How many others sign in, are looked up and searched for.
const OTHERS: u64 = 1_000;

/// What is asked of one size.
pub struct Asked {
    seeded: Seeded,
    /// The owner's session, and those of some of the people.
    owner: String,
    people: Vec<String>,
    /// Where the second page of each list begins.
    log_cursor: String,
    member_cursor: String,
    user_cursor: String,
}

impl Asked {
    pub fn prepare(address: SocketAddr, seeded: &Seeded) -> Result<Self> {
        let enter = |body: &Value| text(&ask(address, "POST", "/auth/login", &Who::default(), body)?, "accessToken");
        let owner = enter(&login())?;
        let people =
            User::scattered(PEOPLE, seeded.users).map(|user| enter(&login_of(user))).collect::<Result<_>>()?;
        let next = |path: &str| -> Result<String> {
            let page = ask(address, "GET", path, &Who::with(&owner), &Value::Null)?;
            text(&page, "nextCursor").with_context(|| format!("{path} has one page only"))
        };
        let Seeded { users, org, app, app_key, scim_token } = seeded;
        let seeded = Seeded {
            users: *users,
            org: org.clone(),
            app: app.clone(),
            app_key: app_key.clone(),
            scim_token: scim_token.clone(),
        };
        let log_cursor = next("/auth/audit-log")?;
        let member_cursor = next(&format!("/org/{org}/members"))?;
        let user_cursor = next(&format!("/apps/{app}/users"))?;
        Ok(Self { seeded, owner, people, log_cursor, member_cursor, user_cursor })
    }

    pub fn question(&self, address: SocketAddr, question: Question) -> Result<Ask> {
        if question == Question::Refresh {
            // Each slice begins with sessions of its own.
            let tokens = User::scattered(CHAINS as u64, self.seeded.users).map(|user| {
                text(&ask(address, "POST", "/auth/login", &Who::default(), &login_of(user))?, "refreshToken")
            });
            return Ok(Ask::chain(tokens.collect::<Result<_>>()?));
        }
        Ok(Ask::Many(self.requests(question)))
    }

    /// Everything but refreshing, one after the other.
    pub fn everything(&self) -> Vec<Vec<u8>> {
        let each: Vec<Vec<Vec<u8>>> = Question::ALL.into_iter().map(|question| self.requests(question)).collect();
        let mut all = vec![];
        for place in 0..usize::try_from(OTHERS).unwrap_or(0) {
            all.extend(each.iter().filter(|list| !list.is_empty()).map(|list| list[place % list.len()].clone()));
        }
        all
    }

    fn requests(&self, question: Question) -> Vec<Vec<u8>> {
        let Seeded { users, org, app, scim_token, .. } = &self.seeded;
        let get = |path: &str, token: &str| client::request("GET", path, &Who::with(token), "", "keep-alive");
        let owner = |paths: Vec<String>| paths.iter().map(|path| get(path, &self.owner)).collect();
        let others = || User::scattered(OTHERS, *users);
        match question {
            Question::SignIn => others()
                .map(|user| {
                    let body = login_of(user).to_string();
                    client::request("POST", "/auth/login", &Who::default(), &body, "keep-alive")
                })
                .collect(),
            Question::Refresh => vec![],
            Question::Me => self.people.iter().map(|token| get("/auth/me", token)).collect(),
            Question::Sessions => self.people.iter().map(|token| get("/auth/sessions", token)).collect(),
            Question::App => owner(vec![format!("/apps/{app}")]),
            Question::AuditLog => {
                owner(vec!["/auth/audit-log".into(), format!("/auth/audit-log?cursor={}", self.log_cursor)])
            }
            Question::Members => {
                let path = format!("/org/{org}/members");
                owner(vec![path.clone(), format!("{path}?cursor={}", self.member_cursor)])
            }
            Question::Users => {
                let path = format!("/apps/{app}/users");
                owner(vec![path.clone(), format!("{path}?cursor={}", self.user_cursor)])
            }
            Question::DirectoryOne => others()
                .map(|user| {
                    let filter = format!("userName%20eq%20%22{}%22", user.email());
                    get(&format!("/scim/v2/Users?filter={filter}"), scim_token)
                })
                .collect(),
            Question::DirectoryPage => {
                let deep = users.saturating_sub(100).max(1);
                let pages = [1, deep / 2, deep].map(|start| format!("/scim/v2/Users?startIndex={start}&count=100"));
                pages.iter().map(|path| get(path, scim_token)).collect()
            }
            Question::NameSearch => {
                let searches = others().flat_map(|user| {
                    let (first, last) = user.names();
                    let start: String = last.chars().take(3).collect();
                    // A family name; how many begin; two words; an address.
                    [last.clone(), start, format!("{first}%20{last}"), user.email()]
                });
                searches.map(|search| get(&format!("/apps/{app}/users?search={search}"), &self.owner)).collect()
            }
        }
    }
}

fn login_of(user: User) -> Value {
    json!({ "email": user.email(), "password": PASSWORD, "options": { "tokenDelivery": "body" } })
}
