//! What was acknowledged, and must therefore be so.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Instant,
};

/// A user of the app who has confirmed the email.
pub struct Person {
    pub email: String,
    pub id: String,
    /// Sign-ins that were acknowledged, and those that may have been carried out without an answer.
    pub sign_ins: u64,
    pub perhaps: u64,
}

pub struct Agent {
    pub id: String,
    pub spent: u64,
    /// A spending whose outcome is not known.
    pub perhaps: u64,
    pub is_suspended: bool,
    pub is_deleted: bool,
}

#[derive(Default)]
pub struct Ledger {
    /// Emails that signed up; each gets a mail.
    pub signed_up: BTreeSet<String>,
    pub people: Vec<Person>,
    /// Access tokens of sessions that ended.
    pub ended: Vec<String>,
    pub keys: BTreeSet<String>,
    pub deleted_keys: BTreeSet<String>,
    /// Keys from before the webhook.
    pub silent: BTreeSet<String>,
    /// The number in the app's name.
    pub renamed: u64,
    pub events: u64,
    pub used: u64,
    /// By ID: length and content as a seed.
    pub objects: BTreeMap<String, (usize, u64)>,
    pub deleted_objects: BTreeSet<String>,
    /// Numbers of deployments, and when each was acknowledged.
    pub deployed: Vec<(Instant, u64)>,
    pub begun: u64,
    /// Message IDs.
    pub mails: BTreeSet<String>,
    pub agents: Vec<Agent>,
    /// Provisioned users by their ids at SCIM, and whether they are active.
    pub staff: BTreeMap<String, bool>,
    /// Those who are in the group, and those who were taken out.
    pub seated: BTreeSet<String>,
    pub unseated: BTreeSet<String>,
    /// Versions of the skill.
    pub published: BTreeSet<String>,
}

impl fmt::Display for Ledger {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign_ins: u64 = self.people.iter().map(|person| person.sign_ins).sum();
        write!(
            out,
            "{} sign-ups, {sign_ins} sign-ins, {} sessions ended, {} keys created and {} of them deleted, {} usage events, {} objects and {} deleted, {} deployments, {} mails, {} agents and {} deleted, {} users by SCIM, {} versions of a skill",
            self.signed_up.len(),
            self.ended.len(),
            self.keys.len() + self.deleted_keys.len(),
            self.deleted_keys.len(),
            self.events,
            self.objects.len(),
            self.deleted_objects.len(),
            self.deployed.len(),
            self.mails.len(),
            self.agents.len(),
            self.agents.iter().filter(|agent| agent.is_deleted).count(),
            self.staff.len(),
            self.published.len()
        )
    }
}
