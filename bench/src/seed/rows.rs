//! The rows themselves, a table at a time, so that the pages of its indexes stay at hand.
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use rusqlite::{Connection, Statement, params};
use serde_json::json;
use tenancy::apps::end_users;

use super::{
    Seeded, Wish,
    people::{User, uuid},
};

const DAY: i64 = 24 * 60 * 60 * 1000;
const YEAR: i64 = 365 * DAY;
const MEMBERS: u64 = 10;
/// What happens to people, in the order it happens.
const EVENTS: [&str; 3] = ["ACCOUNT_CREATED", "EMAIL_VERIFIED", "SIGNED_IN"];
/// How the load generator looks to the server.
const DEVICE: &str = "Unknown device";

// The kinds of ids.
const SESSION: u16 = 1;
const EVENT: u16 = 2;
const ORG: u16 = 3;
const APP: u16 = 4;
const WEBHOOK: u16 = 5;
const OWNERS_EVENT: u16 = 6;

pub struct Writer<'a> {
    pub seeded: &'a Seeded,
    pub wish: &'a Wish,
    pub now: i64,
    pub owner: String,
    pub hash: String,
}

impl Writer<'_> {
    pub fn write(&self, connection: &mut Connection) -> Result<()> {
        let Wish { users, events, .. } = *self.wish;
        let (orgs, webhooks) = (self.wish.orgs(), self.wish.webhooks());
        let bar = bar(users * (5 + events) + users / 10 + orgs * (2 + MEMBERS) + webhooks);
        self.accounts(connection, &bar)?;
        self.sessions(connection, &bar)?;
        self.directory(connection, &bar)?;
        self.people_of_the_app(connection, &bar)?;
        self.log(connection, &bar)?;
        self.organizations(connection, &bar)?;
        self.webhooks(connection, &bar)?;
        bar.finish_and_clear();
        Ok(())
    }

    /// When somebody came: evenly over the year, the last one a day ago.
    fn came(&self, number: u64) -> i64 {
        let part = i128::from(number) * i128::from(YEAR - DAY) / i128::from(self.wish.users + 1);
        self.now - YEAR + i64::try_from(part).unwrap_or(0)
    }

    fn users(&self) -> impl Iterator<Item = User> + use<> {
        (1..=self.wish.users).map(User)
    }

    fn accounts(&self, connection: &mut Connection, bar: &ProgressBar) -> Result<()> {
        let tx = connection.transaction()?;
        let mut account = tx.prepare(
            "INSERT INTO account (id, email, email_key, name, email_verified, password_hash, accepts_marketing,
                                  created_at, updated_at)
             VALUES (?1, ?2, ?2, ?3, 1, ?4, 0, ?5, ?5)",
        )?;
        for user in bar.wrap_iter(self.users()) {
            account.execute(params![user.id(), user.email(), user.name(), self.hash, self.came(user.0)])?;
        }
        drop(account);
        Ok(tx.commit()?)
    }

    /// One each, alive for weeks to come, so that nobody looks new.
    fn sessions(&self, connection: &mut Connection, bar: &ProgressBar) -> Result<()> {
        let tx = connection.transaction()?;
        let mut session = tx.prepare(
            "INSERT INTO session (id, account_id, generation, rotated_at, created_at, authenticated_at, last_seen_at,
                                  expires_at, ends_at, methods, device, user_agent, ip, org_id)
             VALUES (?1, ?2, 0, ?3, ?3, ?3, ?3, ?4, ?5, '[\"pwd\"]', ?6, '', '127.0.0.1', ?7)",
        )?;
        for user in bar.wrap_iter(self.users()) {
            let (id, ends) = (uuid(SESSION, user.0), self.now + 90 * DAY);
            let (came, expires) = (self.came(user.0), self.now + 30 * DAY);
            session.execute(params![id, user.id(), came, expires, ends, DEVICE, self.seeded.org])?;
        }
        drop(session);
        Ok(tx.commit()?)
    }

    /// Everybody is a member of the one large organization, and in its directory.
    fn directory(&self, connection: &mut Connection, bar: &ProgressBar) -> Result<()> {
        let tx = connection.transaction()?;
        let mut directory = Directory::prepare(&tx)?;
        for user in bar.wrap_iter(self.users()) {
            // The first place is the owner's.
            directory.add(&self.seeded.org, user, "member", user.0 + 1, self.came(user.0))?;
        }
        drop(directory);
        tx.execute(
            "UPDATE org SET people = ?2 WHERE id = ?1",
            params![self.seeded.org, i64::try_from(self.wish.users + 1)?],
        )?;
        Ok(tx.commit()?)
    }

    fn people_of_the_app(&self, connection: &mut Connection, bar: &ProgressBar) -> Result<()> {
        let tx = connection.transaction()?;
        let mut person = tx.prepare(
            "INSERT INTO app_user (app_id, account_id, first_sign_in_at, last_sign_in_at, has_words)
             VALUES (?1, ?2, ?3, ?3, 1)",
        )?;
        for user in bar.wrap_iter(self.users()) {
            person.execute(params![self.seeded.app, user.id(), self.came(user.0)])?;
        }
        let mut word = tx.prepare("INSERT INTO app_user_word (app_id, account_id, word) VALUES (?1, ?2, ?3)")?;
        for user in bar.wrap_iter(self.users()) {
            for text in end_users::words(Some(&user.name()), Some(&user.email())) {
                word.execute(params![self.seeded.app, user.id(), text])?;
            }
        }
        drop((person, word));
        Ok(tx.commit()?)
    }

    /// What happened to each, and a long log of the owner's own.
    fn log(&self, connection: &mut Connection, bar: &ProgressBar) -> Result<()> {
        let tx = connection.transaction()?;
        let mut event = tx.prepare(
            "INSERT INTO audit_event (id, type, account_id, actor, org_id, ip, user_agent, at, details)
             VALUES (?1, ?2, ?3, ?3, ?4, '127.0.0.1', '', ?5, ?6)",
        )?;
        let details = json!({ "methods": ["pwd"], "device": DEVICE }).to_string();
        let events = self.wish.events;
        for number in bar.wrap_iter(0..self.wish.users * events) {
            let (user, place) = (User(1 + number / events), usize::try_from(number % events)?);
            let kind = EVENTS[place.min(EVENTS.len() - 1)];
            let at = self.came(user.0) + i64::try_from(place)? * 60_000;
            let org = (place == 0).then_some(&self.seeded.org);
            event.execute(params![uuid(EVENT, number), kind, user.id(), org, at, details])?;
        }
        for number in bar.wrap_iter(0..self.wish.users / 10) {
            let at = self.came(number * 10);
            let id = uuid(OWNERS_EVENT, number);
            event.execute(params![id, "PROFILE_UPDATED", self.owner, None::<&str>, at, details])?;
        }
        drop(event);
        Ok(tx.commit()?)
    }

    /// Many small organizations, each with an app.
    fn organizations(&self, connection: &mut Connection, bar: &ProgressBar) -> Result<()> {
        let tx = connection.transaction()?;
        let mut org = tx.prepare(
            "INSERT INTO org (id, name, slug, tier, metadata, people, created_at, updated_at)
             VALUES (?1, ?2, ?3, (SELECT tier FROM org LIMIT 1), '{}', ?4, ?5, ?5)",
        )?;
        let mut app = tx.prepare(
            "INSERT INTO app (id, org_id, owner_id, name, slug, redirect_uris, allowed_origins, settings, has_webhooks,
                              created_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5, '[]', '[]', (SELECT settings FROM app LIMIT 1), ?6, ?7, ?7)",
        )?;
        for number in bar.wrap_iter(0..self.wish.orgs()) {
            let (id, at) = (uuid(ORG, number), self.came(number));
            org.execute(params![id, format!("Org {number}"), format!("org-{number}"), i64::try_from(MEMBERS)?, at])?;
            let (name, slug) = (format!("App {number}"), format!("app-{number}"));
            let owner = User(1 + number).id();
            app.execute(params![uuid(APP, number), id, owner, name, slug, number < self.wish.webhooks(), at])?;
            bar.inc(1);
        }
        let mut directory = Directory::prepare(&tx)?;
        for number in 0..self.wish.orgs() {
            for place in bar.wrap_iter(0..MEMBERS) {
                let user = User(1 + (number + place * self.wish.orgs()) % self.wish.users);
                let role = if place == 0 { "owner" } else { "member" };
                directory.add(&uuid(ORG, number), user, role, place + 1, self.came(user.0))?;
            }
        }
        drop((org, app, directory));
        Ok(tx.commit()?)
    }

    /// Each listens to something, but nothing happens in these apps.
    fn webhooks(&self, connection: &mut Connection, bar: &ProgressBar) -> Result<()> {
        let tx = connection.transaction()?;
        let mut webhook = tx.prepare(
            "INSERT INTO webhook (id, app_id, url, events, is_active, standard_headers, secret, failures, created_at,
                                  held_until, fence)
             VALUES (?1, ?2, 'https://hooks.example.com/', '[\"user.signed_in\"]', 1, 1, X'00', 0, ?3, 0, 0)",
        )?;
        let mut listens = tx.prepare(
            "INSERT INTO webhook_subscription (app_id, event, webhook_id) VALUES (?1, 'user.signed_in', ?2)",
        )?;
        for number in bar.wrap_iter(0..self.wish.webhooks()) {
            let (id, app) = (uuid(WEBHOOK, number), uuid(APP, number % self.wish.orgs()));
            webhook.execute(params![id, app, self.came(number)])?;
            listens.execute(params![app, id])?;
        }
        drop((webhook, listens));
        Ok(tx.commit()?)
    }
}

/// The three rows that somebody is in an organization by.
pub struct Directory<'a> {
    member: Statement<'a>,
    person: Statement<'a>,
    value: Statement<'a>,
}

impl<'a> Directory<'a> {
    pub fn prepare(connection: &'a Connection) -> Result<Self> {
        Ok(Self {
            member: connection
                .prepare("INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES (?1, ?2, ?3, ?4)")?,
            person: connection.prepare(
                "INSERT INTO person (org_id, id, place, account_id, source, active, is_home, comes_back, user_name,
                                     user_name_key, email, email_key, attributes, version, created_at, updated_at,
                                     role)
                 VALUES (?1, ?2, ?3, ?2, 'member', 1, 0, 0, ?4, ?4, ?4, ?4, ?5, 1, ?6, ?6, ?7)",
            )?,
            value: connection.prepare(
                "INSERT INTO person_value (org_id, person_id, path, item, value, folded)
                 VALUES (?1, ?2, ?3, 0, ?4, ?5)",
            )?,
        })
    }

    pub fn add(&mut self, org: &str, user: User, role: &str, place: u64, at: i64) -> Result<()> {
        let (id, email, name) = (user.id(), user.email(), user.name());
        self.member.execute(params![org, id, role, at])?;
        let work = json!([{ "value": email, "type": "work", "primary": true }]);
        let attributes = json!({ "displayName": name, "emails": work });
        self.person.execute(params![org, id, i64::try_from(place)?, email, attributes.to_string(), at, role])?;
        for found in tenancy::orgs::people::values_of(&attributes) {
            self.value.execute(params![org, id, found.path, found.value, found.value.to_lowercase()])?;
        }
        Ok(())
    }
}

fn bar(rows: u64) -> ProgressBar {
    let bar = ProgressBar::new(rows).with_prefix("seeding");
    if let Ok(style) = ProgressStyle::with_template("{prefix:8} {bar:30} {percent}%, {elapsed} gone, {eta} left") {
        bar.set_style(style);
    }
    bar
}
