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

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DomainState {
    Claimed,
    Active,
    /// Its removal was asked for.
    Leaving,
    Removed,
}

/// A name of the app.
#[derive(Clone)]
pub struct Domain {
    pub state: DomainState,
    pub since: Instant,
    /// Another app has claimed it as well.
    pub is_contested: bool,
}

impl Domain {
    pub fn is_there(&self) -> bool {
        matches!(self.state, DomainState::Claimed | DomainState::Active)
    }
}

/// An organization that buys plans.
#[derive(Clone)]
pub struct Buyer {
    pub org: String,
    pub plan: &'static str,
    /// Another plan that may have taken effect without an answer, or may not.
    pub perhaps: Option<&'static str>,
    pub status: &'static str,
    /// It ends with the period.
    pub ends: bool,
    /// Changes to the smaller plan with the end of the period.
    pub shrinks: bool,
    /// Subscriptions that it had, and invoices that it paid.
    pub subscriptions: u64,
    pub invoices: u64,
    /// None where an answer was lost.
    pub apps: Option<u64>,
}

/// A payment of a customer to the merchant.
#[derive(Clone)]
pub struct Payment {
    pub id: String,
    pub amount: u64,
    pub refunded: u64,
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
    pub buyers: Vec<Buyer>,
    /// Changes of plans and cancellations.
    pub plan_changes: u64,
    pub cancellations: u64,
    pub payments: Vec<Payment>,
    /// Names that were begun.
    pub domain_names: u64,
    pub domains: BTreeMap<String, Domain>,
}

impl fmt::Display for Ledger {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domains = |state| self.domains.values().filter(|domain| domain.state == state).count();
        let sign_ins: u64 = self.people.iter().map(|person| person.sign_ins).sum();
        write!(
            out,
            "{} sign-ups, {sign_ins} sign-ins, {} sessions ended, {} keys created and {} of them deleted, {} usage events, {} objects and {} deleted, {} deployments, {} mails, {} agents and {} deleted, {} users by SCIM, {} versions of a skill, {} plans bought, {} changed and {} canceled, {} payments and {} refunds, {} domains served and {} removed, {} of them claimed by another app",
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
            self.published.len(),
            self.buyers.iter().map(|buyer| buyer.subscriptions).sum::<u64>(),
            self.plan_changes,
            self.cancellations,
            self.payments.len(),
            self.payments.iter().filter(|payment| payment.refunded > 0).count(),
            domains(DomainState::Active),
            domains(DomainState::Removed),
            self.domains.values().filter(|domain| domain.is_contested).count()
        )
    }
}
