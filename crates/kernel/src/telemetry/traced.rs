//! What features declare so that one request can be followed through all of them, and so that the installation notices by
//! itself what goes wrong.
use std::{collections::BTreeMap, pin::Pin};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Janua, clock::Timestamp};

/// Finds what a request left in a feature's tables: at most [`MOST_STEPS`], oldest first.
#[derive(Clone, Copy)]
pub struct Traced(pub fn(Janua, String) -> Tracing);

pub type Tracing = Pin<Box<dyn Future<Output = db::Result<Vec<TraceStep>>> + Send>>;

/// How many steps of a kind are shown. A caller may give many requests one ID.
pub const MOST_STEPS: u32 = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    Request,
    Event,
    Job,
    Delivery,
    Mail,
    Usage,
}

/// Something that a request caused: ids, names and states, never contents.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TraceStep {
    pub kind: StepKind,
    pub id: String,
    pub at: Timestamp,
    /// The route, the type of the event, the kind of job, the name of the mail or the meter.
    pub name: String,
    /// How far it is: `done`, `waiting`, `running`, `dead`, `sent`, `delivered`, `failed` and the like.
    pub state: Option<String>,
    pub tries: Option<u32>,
    /// The HTTP status of a request, or of the last answer to a delivery.
    pub status_code: Option<u16>,
    pub ended_at: Option<Timestamp>,
    /// IDs and figures by name.
    pub details: BTreeMap<String, String>,
}

impl TraceStep {
    pub fn new(kind: StepKind, id: impl Into<String>, at: Timestamp, name: impl Into<String>) -> Self {
        Self {
            kind,
            id: id.into(),
            at,
            name: name.into(),
            state: None,
            tries: None,
            status_code: None,
            ended_at: None,
            details: BTreeMap::new(),
        }
    }

    #[must_use]
    pub fn state(mut self, state: impl Into<String>) -> Self {
        self.state = Some(state.into());
        self
    }

    #[must_use]
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = Some(tries);
        self
    }

    /// An answer of 0 is none.
    #[must_use]
    pub fn status_code(mut self, status: u16) -> Self {
        self.status_code = Some(status).filter(|status| *status > 0);
        self
    }

    #[must_use]
    pub fn ended_at(mut self, at: Option<Timestamp>) -> Self {
        self.ended_at = at;
        self
    }

    /// A detail, where there is one.
    #[must_use]
    pub fn with(mut self, name: &str, value: Option<impl ToString>) -> Self {
        self.details.extend(value.map(|value| (name.to_owned(), value.to_string())));
        self
    }
}

/// A check that the installation makes of itself once a minute. The status page shows an incident while it finds something.
#[derive(Clone, Copy)]
pub struct Alarm {
    /// The name it is stored under. It must never change.
    pub key: &'static str,
    pub check: fn(Janua) -> Checking,
}

pub type Checking = Pin<Box<dyn Future<Output = db::Result<Option<Symptom>>> + Send>>;

/// What an alarm found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symptom {
    /// The title of the incident, for everybody.
    pub title: &'static str,
    /// What users notice of it, for everybody.
    pub message: &'static str,
    /// What was found, for the platform owners alone.
    pub finding: String,
    /// What they can do about it.
    pub advice: &'static str,
    pub is_major: bool,
}
