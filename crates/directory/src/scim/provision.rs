//! What happens to people when their organization's provider speaks: announced, changed, switched off and on again.
//!
//! Announcing somebody gives the organization nothing of theirs. An invitation goes to the address, and whoever accepts
//! it has proven it. Only somebody who is a member already is linked at once. The account's own address, name and
//! password are never written from here.
use axum::http::HeaderMap;
use db::{Reach, Tx};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, NOT_FOUND, Result},
    jobs::{self, Job, Later},
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::ApplicationId,
    email::Email,
    enter::{ACCOUNT_TOPIC, ScimToken},
    events::{
        self, About, By, Event,
        happenings::{AppKeyDeleted, SessionRevoked},
    },
    messages::budget,
    orgs::{
        LAST_OWNER, Org, OrgId, Role,
        invites::Invite,
        members::OrgMember,
        people::{self, ANNOUNCED, Person, PersonId},
    },
};

use super::{
    answer::must_match,
    user::{self, Read},
};
use crate::scim::events::{PersonDeactivated, PersonProvisioned, PersonReactivated, PersonUpdated};

pub const UNIQUENESS: Code = Code::new(409, "uniqueness", "The value is already in use.");

fn about(person: &Person) -> About {
    let about = About::in_org(person.org_id);
    person.account_id.map_or(about, |account| about.person(account))
}

async fn hold(tx: &mut Tx, org: OrgId) -> Result<()> {
    if Org::hold(tx, org).await? { Ok(()) } else { Err(NOT_FOUND.into()) }
}

/// Nobody else in the organization has the name or the address.
async fn must_be_free(tx: &mut Tx, org: OrgId, read: &Read, whose: Option<PersonId>) -> Result<()> {
    let by_name = Person::by_user_name(tx, org, &read.user_name_key()).await?;
    if by_name.is_some_and(|other| Some(other.id) != whose) {
        return Err(UNIQUENESS.because("userName is taken."));
    }
    if let Some((_, key)) = &read.email
        && Person::by_address(tx, org, key).await?.is_some_and(|other| Some(other.id) != whose)
    {
        return Err(UNIQUENESS.because("Another user has this email."));
    }
    Ok(())
}

/// A new person; or, where a member of the organization is meant, that member, from now on in the provider's hands.
pub async fn create(janua: &Janua, caller: &ScimToken, read: &Read) -> Result<PersonId> {
    let (now, org) = (janua.clock.now(), caller.org);
    let id = PersonId::new(&janua.entropy, now);
    transact!(janua, async |tx| {
        hold(tx, org).await?;
        if let Some(member) = member_meant(tx, org, read).await? {
            let id = member.id;
            change(tx, janua, &caller.by, member, read, now).await?;
            return Ok(id);
        }
        must_be_free(tx, org, read, None).await?;
        let person = Person {
            org_id: org,
            id,
            place: Person::next_place(tx, org).await?,
            account_id: None,
            role: None,
            source: ANNOUNCED.to_owned(),
            active: read.active.unwrap_or(true),
            is_home: false,
            comes_back: false,
            user_name: read.user_name.clone(),
            user_name_key: read.user_name_key(),
            external_id: read.external_id.clone(),
            email: read.email.as_ref().map(|(email, _)| email.clone()),
            email_key: read.email.as_ref().map(|(_, key)| key.clone()),
            attributes: read.attributes.clone(),
            version: 1,
            created_at: now,
            updated_at: now,
        };
        if !person.insert(tx).await? {
            return Err(UNIQUENESS.into());
        }
        caller.record_about(tx, janua, about(&person), &PersonProvisioned { person_id: id }).await?;
        if person.active {
            ask_in(tx, janua, &person, now).await?;
        }
        Ok(id)
    })
}

/// A member who came without being announced, and has the name or the address.
async fn member_meant(tx: &mut Tx, org: OrgId, read: &Read) -> Result<Option<Person>> {
    let by_name = Person::by_user_name(tx, org, &read.user_name_key()).await?;
    let found = match (by_name, &read.email) {
        (Some(person), _) => Some(person),
        (None, Some((_, key))) => Person::by_address(tx, org, key).await?,
        (None, None) => None,
    };
    Ok(found.filter(|person| person.source != ANNOUNCED && person.account_id.is_some()))
}

/// Another document for somebody who is there; `make` is given the one that is.
pub async fn update(
    janua: &Janua,
    caller: &ScimToken,
    id: PersonId,
    headers: &HeaderMap,
    make: impl Fn(&Person) -> Result<Read> + Send + Sync,
) -> Result<()> {
    let (now, org) = (janua.clock.now(), caller.org);
    transact!(janua, async |tx| {
        hold(tx, org).await?;
        let person = Person::find(&mut *tx, org, id).await?.ok_or(NOT_FOUND)?;
        must_match(headers, person.version)?;
        let read = make(&person)?;
        change(tx, janua, &caller.by, person, &read, now).await
    })
}

/// As a DELETE has it: the person stays, switched off.
pub async fn remove(janua: &Janua, caller: &ScimToken, id: PersonId, headers: &HeaderMap) -> Result<()> {
    update(janua, caller, id, headers, |person| {
        let read = Read::of(user::document(person))?;
        Ok(Read { active: Some(false), ..read })
    })
    .await
}

async fn change(tx: &mut Tx, janua: &Janua, by: &By, person: Person, read: &Read, now: Timestamp) -> Result<()> {
    let org = person.org_id;
    must_be_free(tx, org, read, Some(person.id)).await?;
    let active = read.active.unwrap_or(person.active);
    let mut new = Person {
        source: ANNOUNCED.to_owned(),
        user_name: read.user_name.clone(),
        user_name_key: read.user_name_key(),
        external_id: read.external_id.clone(),
        email: read.email.as_ref().map(|(email, _)| email.clone()),
        email_key: read.email.as_ref().map(|(_, key)| key.clone()),
        attributes: read.attributes.clone(),
        updated_at: now,
        ..person.clone()
    };
    let is_said = |p: &Person| {
        (p.source.clone(), p.user_name.clone(), p.external_id.clone(), p.email.clone(), p.attributes.clone())
    };
    let is_other = is_said(&new) != is_said(&person);
    if !is_other && active == person.active {
        return Ok(());
    }
    // What was sent to an address that is no longer theirs opens nothing.
    if new.email_key != person.email_key && person.account_id.is_none() {
        cancel_invite(tx, &person).await?;
        if person.active && active {
            ask_in(tx, janua, &new, now).await?;
        }
    }
    if is_other {
        events::record(tx, janua, by, about(&new), &PersonUpdated { person_id: new.id }).await?;
    }
    match (person.active, active) {
        (true, false) => switch_off(tx, janua, by, &mut new, now).await?,
        (false, true) => switch_on(tx, janua, by, &mut new, now).await?,
        _ => {}
    }
    new.save(tx).await?;
    Ok(())
}

async fn cancel_invite(tx: &mut Tx, person: &Person) -> Result<()> {
    if let Some(email) = person.email.as_deref().and_then(Email::parse) {
        Invite::cancel(tx, person.org_id, &email).await?;
    }
    Ok(())
}

/// Everything the person could act with in the organization ends here, in this transaction.
async fn switch_off(tx: &mut Tx, janua: &Janua, by: &By, person: &mut Person, now: Timestamp) -> Result<()> {
    let org = person.org_id;
    cancel_invite(tx, person).await?;
    person.active = false;
    if let Some(account) = person.account_id
        && let Some(member) = OrgMember::find(tx, org, account).await?
    {
        if member.role == Role::Owner && OrgMember::owners(tx, org).await? == 1 {
            return Err(LAST_OWNER.into());
        }
        Invite::withdraw(tx, org, account, None).await?;
        let ended = OrgMember::switch_off(tx, janua, org, account, person.is_home, now).await?;
        for session in ended.sessions {
            let event = SessionRevoked { session_id: session, reason: "deactivated" };
            events::record(tx, janua, by, Some(account), &event).await?;
        }
        for (application, key) in ended.keys {
            record_key(tx, janua, by, org, application, &AppKeyDeleted { key_id: key }).await?;
        }
        tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.to_string()).await?;
        person.comes_back = true;
    }
    events::record(tx, janua, by, about(person), &PersonDeactivated { person_id: person.id }).await?;
    Ok(())
}

async fn record_key(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    org: OrgId,
    of: ApplicationId,
    event: &dyn Event,
) -> Result<()> {
    let by = By { app: Some(of), ..by.clone() };
    Ok(events::record(tx, janua, &by, About::in_org(org), event).await?)
}

/// Whoever was a member is one again, though never again an owner by it; everybody else is asked in anew.
async fn switch_on(tx: &mut Tx, janua: &Janua, by: &By, person: &mut Person, now: Timestamp) -> Result<()> {
    person.active = true;
    match person.account_id.filter(|_| person.comes_back) {
        Some(account) => {
            person.comes_back = false;
            let role = people::role_by_groups(tx, person.org_id, person.id).await?.unwrap_or(Role::Member);
            OrgMember::add(tx, janua, person.org_id, account, role).await?;
            tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.to_string()).await?;
        }
        None => ask_in(tx, janua, person, now).await?,
    }
    events::record(tx, janua, by, about(person), &PersonReactivated { person_id: person.id }).await?;
    Ok(())
}

async fn ask_in(tx: &mut Tx, janua: &Janua, person: &Person, now: Timestamp) -> Result<()> {
    if person.account_id.is_none() && person.email.is_some() {
        jobs::enqueue(tx, janua, now, &AskIn { org: person.org_id, person: person.id }).await?;
    }
    Ok(())
}

/// How many such mails an hour go out for one organization and to one address; the rest waits for the next hour.
const BY_ORG: u32 = 500;
const TO_ONE: u32 = 5;

/// Writes to somebody who was announced and has not come yet.
#[derive(Serialize, Deserialize)]
pub struct AskIn {
    org: OrgId,
    person: PersonId,
}

impl Job for AskIn {
    const KIND: &'static str = "directory.ask_in";
    /// A large directory is written to for days.
    const TRIES: u32 = 400;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let is_sent = transact!(janua, async |tx| {
            Org::hold(tx, self.org).await?;
            let person = Person::find(&mut *tx, self.org, self.person).await?;
            let waiting = person.filter(|person| person.active && person.account_id.is_none());
            let Some(email) = waiting.and_then(|person| person.email).and_then(|email| Email::parse(&email)) else {
                return Ok(true);
            };
            let Some(org) = Org::find(&mut *tx, self.org).await? else { return Ok(true) };
            let whose = org.id.to_string();
            for (kind, whose, most) in [("scim-org", whose.as_str(), BY_ORG), ("invite-to", email.key(), TO_ONE)] {
                if !budget::spend(tx, &janua, kind, whose, most).await? {
                    return Ok(false);
                }
            }
            Ok(Invite::announce(tx, &janua, &org, &email).await?)
        })?;
        if is_sent { Ok(()) } else { Err(Later::retry_after("the hour's budget of mails is spent", budget::HOUR)) }
    }
}
