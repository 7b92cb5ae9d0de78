//! The acts that are measured, and how clients ask for them.
use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{
    generator_time,
    stage::{PEOPLE, Person, Stage, from},
};
use crate::{
    client::{self, Who},
    identity::PASSWORD,
    load::{self, Ask},
    process::Server,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    SignIn,
    Refresh,
    Me,
    Introspect,
    Change,
    SignUp,
    Batch,
    Event,
    /// A change in an app, heard by no webhook; and by one.
    InApp,
    Delivery,
}

pub const EVERY: [Act; 10] = [
    Act::SignIn,
    Act::Refresh,
    Act::Me,
    Act::Introspect,
    Act::Change,
    Act::SignUp,
    Act::Batch,
    Act::Event,
    Act::InApp,
    Act::Delivery,
];

/// Events of a batch, of customers in turn.
const BATCH: usize = 100;
const CUSTOMERS: usize = 10;
/// More than sign up in a turn.
const NEWCOMERS: usize = 1_000;
const PATIENCE: Duration = Duration::from_mins(1);

/// What clients did.
pub struct Driven {
    pub acts: u64,
    pub took: Duration,
    pub generator: Duration,
}

impl Act {
    pub const fn name(self) -> &'static str {
        match self {
            Self::SignIn => "sign-in",
            Self::Refresh => "refresh",
            Self::Me => "/auth/me",
            Self::Introspect => "introspection",
            Self::Change => "change",
            Self::SignUp => "sign-up",
            Self::Batch => "100 usage events",
            Self::Event => "usage event",
            Self::InApp => "change in an app",
            Self::Delivery => "webhook",
        }
    }

    /// With how many clients its processor time is measured. Those that change one row would wait for each other.
    pub fn clients(self) -> usize {
        match self {
            Self::Batch | Self::Event | Self::InApp | Self::Delivery => 1,
            Self::SignIn | Self::SignUp => 4,
            _ => 8,
        }
    }

    /// The quota's row is locked by the statement before the one that travels with the commit.
    pub fn locks_before_end(self) -> Option<usize> {
        matches!(self, Self::Batch | Self::Event).then_some(1)
    }

    /// Lets clients do it for a while.
    pub fn drive(self, stage: &Stage, node: &Server, ask: &Ask, turn: Duration, clients: usize) -> Result<Driven> {
        let receiver = &stage.heard.receiver.count;
        let (started, delivered) = (Instant::now(), receiver.load(Relaxed));
        let accounts = || stage.database.number("SELECT COUNT(*) FROM account");
        let before = if self == Self::SignUp { accounts()? } else { 0.0 };
        let heard = load::closed_loop(node.address, turn, ask, clients)?;
        let until = |done: &dyn Fn() -> Result<bool>| {
            let started = Instant::now();
            while !done()? {
                ensure!(started.elapsed() < PATIENCE, "{} does not come to its end", self.name());
                thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        };
        match self {
            Self::SignUp => {
                // Jobs create the accounts and send the mails. Asking PostgreSQL meanwhile would cost it something.
                node.rest()?;
                #[expect(clippy::cast_precision_loss, reason = "few")]
                let expected = before + heard.answered as f64;
                until(&|| Ok(accounts()? >= expected && stage.database.number("SELECT COUNT(*) FROM mail")? < 1.0))?;
            }
            Self::Delivery => {
                until(&|| Ok(receiver.load(Relaxed) >= delivered + heard.answered))?;
                node.rest()?;
            }
            _ => {}
        }
        Ok(Driven { acts: heard.answered, took: started.elapsed(), generator: generator_time(&heard) })
    }

    /// What clients ask. Each has a new session where they refresh.
    pub fn ask(self, stage: &Stage, node: &Server, clients: usize) -> Result<Ask> {
        Ok(match self {
            Self::Refresh => Ask::chain_through(stage.sessions(node, clients)?, stage.key.clone()),
            Self::SignUp => Ask::Many((0..NEWCOMERS).map(|_| sign_up()).collect()),
            Self::InApp => Ask::Many(stage.people.iter().map(|person| change(&person.in_app)).collect()),
            Self::Delivery => Ask::again(change(&stage.heard.token)),
            _ => Ask::Many(stage.people.iter().map(|person| self.request(stage, person)).collect()),
        })
    }

    /// The act of a person.
    fn request(self, stage: &Stage, person: &Person) -> Vec<u8> {
        let request = |method: &str, path: &str, who: &Who<'_>, body: &serde_json::Value| {
            let body = if body.is_null() { String::new() } else { body.to_string() };
            client::request(method, path, who, &body, "keep-alive")
        };
        let through = Who::through(&stage.secret);
        let event = |customer: usize| json!({ "meter": "api_calls", "customer": format!("customer-{customer}") });
        match self {
            Self::SignIn => {
                let options = json!({ "tokenDelivery": "body" });
                let body = json!({ "email": person.email, "password": PASSWORD, "options": options });
                from(&request("POST", "/auth/login", &Who::through(&stage.key), &body), &person.ip)
            }
            // The generator puts the token of its connection in.
            Self::Refresh => vec![],
            Self::Me => request("GET", "/auth/me", &Who::with(&person.in_app), &serde_json::Value::Null),
            Self::Introspect => request("POST", "/oauth/introspect", &through, &json!({ "token": person.in_app })),
            Self::Change => change(&person.token),
            Self::InApp | Self::Delivery => change(&person.in_app),
            Self::SignUp => sign_up(),
            Self::Batch => {
                let events: Vec<_> = (0..BATCH).map(|number| event(number % CUSTOMERS)).collect();
                request("POST", "/usage/track", &through, &json!({ "events": events }))
            }
            Self::Event => request("POST", "/usage/track", &through, &event(1)),
        }
    }
}

fn change(token: &str) -> Vec<u8> {
    client::request("PATCH", "/user/profile", &Who::with(token), r#"{"name":"Bench"}"#, "keep-alive")
}

/// A sign-up with another email each time.
fn sign_up() -> Vec<u8> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let body =
        json!({ "email": format!("new-{number}@example.com"), "password": PASSWORD, "name": "Bench" }).to_string();
    let request = client::request("POST", "/auth/register", &Who::default(), &body, "keep-alive");
    from(&request, &format!("198.19.{}.{}", number / 250 % 250, number % 250))
}

/// What the given clients ask: the list again and again, each request as the next person, so that they seldom meet.
pub fn mixed(stage: &Stage, node: &Server, list: &[Act], clients: Range<usize>) -> Result<Ask> {
    let people: Vec<&Person> = clients.clone().map(|client| &stage.people[client % PEOPLE]).collect();
    let acts = std::iter::repeat_n(list, people.len()).flatten();
    let requests = acts.zip(people.iter().cycle()).map(|(act, person)| act.request(stage, person)).collect();
    Ok(if list.contains(&Act::Refresh) {
        Ask::Mixed { requests, tokens: stage.sessions(node, clients.len())?, app_key: stage.key.clone() }
    } else {
        Ask::Many(requests)
    })
}
