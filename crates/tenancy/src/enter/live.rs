//! Caches of tokens, sessions, memberships and app keys, so that most requests need no database, and their
//! invalidation by notices.
use std::{sync::Arc, time::Duration};

use db::Notice;
use kernel::{
    Janua,
    crypto::{Fingerprint, Secret},
    http::AppOrigins,
    id::Id,
    recent::Recent,
};

use super::memory::{MOST, Memory, REMEMBERED};
use crate::{
    accounts::factors::Whole,
    apps::{self, Application, Keyed},
    ids::{AccountId, ApplicationId, MachineId, OrgId, SessionId},
    machines::{self, Machine, MachineClaims},
    orgs::{self, Membership},
    sessions::{
        self,
        tokens::{self, Claims},
    },
};

/// A session that is alive, and its account.
#[derive(Clone)]
pub struct Living {
    pub session: Arc<sessions::StoredSession>,
    pub person: Arc<Whole>,
    /// The organization the session acts for.
    pub org: Option<Arc<Membership>>,
}

/// The caches of this node.
pub struct Live {
    pub(crate) tokens: Recent<Fingerprint, Arc<Claims>>,
    sessions: Memory<SessionId, sessions::StoredSession>,
    people: Memory<AccountId, Whole>,
    members: Memory<(OrgId, AccountId), Membership>,
    keys: Memory<Fingerprint, Keyed>,
    machines: Memory<MachineId, Machine>,
    pub(crate) machine_tokens: Recent<Fingerprint, Arc<MachineClaims>>,
}

fn group<Kind>(id: Id<Kind>) -> u128 {
    id.uuid().as_u128()
}

impl Default for Live {
    fn default() -> Self {
        Self {
            tokens: Recent::new(MOST, Duration::from_mins(15)),
            sessions: Memory::grouped(|_, session| [session.org_id.map(group), None]),
            people: Memory::default(),
            members: Memory::grouped(|(org, _), _| [Some(group(*org)), None]),
            keys: Memory::grouped(|_, keyed| [Some(group(keyed.org_id)), Some(group(keyed.app_id))]),
            machines: Memory::grouped(|_, machine| [Some(group(machine.org_id)), None]),
            machine_tokens: Recent::new(MOST, Duration::from_hours(1)),
        }
    }
}

impl Live {
    /// Removes the entries that a notice invalidates.
    pub fn hear(&self, notice: &Notice) {
        match notice {
            Notice::News { topic, body } if topic == sessions::TOPIC => match body.parse::<SessionId>() {
                Ok(id) => self.sessions.forget(&id),
                Err(_) => self.sessions.forget_all(),
            },
            Notice::News { topic, body } if topic == ACCOUNT_TOPIC => match body.parse::<AccountId>() {
                Ok(id) => self.people.forget(&id),
                Err(_) => self.people.forget_all(),
            },
            Notice::News { topic, body } if topic == orgs::TOPIC => match body.parse::<OrgId>() {
                Ok(id) => {
                    self.sessions.forget_group(group(id));
                    self.members.forget_group(group(id));
                    self.keys.forget_group(group(id));
                    self.machines.forget_group(group(id));
                }
                Err(_) => {
                    self.sessions.forget_all();
                    self.members.forget_all();
                    self.keys.forget_all();
                    self.machines.forget_all();
                }
            },
            Notice::News { topic, body } if topic == machines::TOPIC => match body.parse::<MachineId>() {
                Ok(id) => self.machines.forget(&id),
                Err(_) => self.machines.forget_all(),
            },
            Notice::News { topic, body } if topic == apps::TOPIC => match body.parse::<ApplicationId>() {
                Ok(id) => self.keys.forget_group(group(id)),
                Err(_) => self.keys.forget_all(),
            },
            Notice::News { .. } => {}
            Notice::StartOver => {
                self.sessions.forget_all();
                self.people.forget_all();
                self.members.forget_all();
                self.keys.forget_all();
                self.machines.forget_all();
            }
        }
    }

    /// The membership of an account in an organization; none for other accounts.
    pub(super) async fn membership(
        &self,
        janua: &Janua,
        org: OrgId,
        account: AccountId,
    ) -> db::Result<Option<Arc<Membership>>> {
        self.members.recall(&janua.db, &(org, account), || Membership::of(&janua.db, org, account)).await
    }

    /// The app and kind of an app key; none for an unknown key. Its use is noted when it is read from the database.
    pub async fn keyed(&self, janua: &Janua, key: &Secret) -> db::Result<Option<Arc<Keyed>>> {
        let read = async || {
            let found = Keyed::find(&janua.db, key).await?;
            if let Some(found) = &found {
                found.note_use(&janua.db, janua.clock.now()).await?;
            }
            Ok(found)
        };
        self.keys.recall(&janua.db, &Fingerprint::of(key.expose()), read).await
    }

    /// A machine in any state; none for an unknown ID.
    pub async fn machine(&self, janua: &Janua, id: MachineId) -> db::Result<Option<Arc<Machine>>> {
        self.machines.recall(&janua.db, &id, || Machine::find(&janua.db, id)).await
    }

    /// Whether an account exists and is not disabled.
    pub async fn is_enabled(&self, janua: &Janua, account: AccountId) -> db::Result<bool> {
        let found = self.people.recall(&janua.db, &account, || Whole::find(&janua.db, account)).await?;
        Ok(found.is_some_and(|person| person.account.disabled_at.is_none()))
    }

    /// A session that is alive now, and its account.
    async fn living(&self, janua: &Janua, id: SessionId) -> db::Result<Option<Living>> {
        let now = janua.clock.now();
        let session = self.sessions.recall(&janua.db, &id, || sessions::StoredSession::find(&janua.db, id)).await?;
        let Some(session) = session.filter(|session| session.is_alive(now)) else { return Ok(None) };
        let account = session.account_id;
        let Some(person) = self.people.recall(&janua.db, &account, || Whole::find(&janua.db, account)).await? else {
            return Ok(None);
        };
        // Its sessions were ended, too; this holds should one be missed.
        if person.account.disabled_at.is_some() {
            return Ok(None);
        }
        // A framework agent that is suspended holds nothing that users gave it.
        if session.app_id.is_none()
            && let Some(client) = session.holder().and_then(|client| client.parse::<MachineId>().ok())
            && let Some(machine) = self.machine(janua, client).await?
            && machine.state_at(now) != machines::State::Active
        {
            return Ok(None);
        }
        let org = match session.org_id {
            Some(org) => self.membership(janua, org, account).await?,
            None => None,
        };
        Ok(Some(Living { session, person, org }))
    }
}

/// The topic of notices about changed accounts.
pub const ACCOUNT_TOPIC: &str = crate::ids::topic::ACCOUNT;

/// Reloads the signing keys when a node changes them, and the origins of apps when an app changes. A change by a
/// command beside an embedded database is noticed within a minute.
pub async fn watch(janua: Janua) {
    let mut notices = janua.db.listen(&[sessions::keys::TOPIC, apps::TOPIC, orgs::TOPIC]);
    // Notices do not delay the interval. The first reload can wait: everything was read at the start.
    let mut minute = tokio::time::interval(REMEMBERED);
    minute.reset();
    loop {
        let heard = tokio::select! {
            _ = minute.tick() => Some(Notice::StartOver),
            heard = notices.next() => heard,
        };
        let (is_about_keys, is_about_apps) = match heard {
            None => return,
            Some(Notice::News { topic, .. }) => {
                (topic == sessions::keys::TOPIC, topic == apps::TOPIC || topic == orgs::TOPIC)
            }
            Some(Notice::StartOver) => (true, true),
        };
        if is_about_keys && let Err(error) = sessions::keys::load(&janua).await {
            tracing::error!(error, "cannot reload the signing keys; using the loaded ones");
        }
        if is_about_apps && let Err(error) = read_origins(&janua).await {
            tracing::error!(%error, "cannot reload the origins of apps; using the loaded ones");
        }
    }
}

pub async fn read_origins(janua: &Janua) -> db::Result<()> {
    janua.own::<Arc<AppOrigins>>().set(Application::origins(&janua.db).await?);
    Ok(())
}

fn verified(janua: &Janua, token: &str) -> Option<Arc<Claims>> {
    let live = janua.own::<Arc<Live>>();
    let key = Fingerprint::of(token);
    match live.tokens.get(&key) {
        Some(claims) => tokens::is_current(&claims, janua.clock.now()).then_some(claims),
        None => {
            let claims = Arc::new(tokens::verify(janua, token)?);
            live.tokens.insert(key, claims.clone());
            Some(claims)
        }
    }
}

/// The claims and session of an access token that is valid now.
pub async fn recognise(janua: &Janua, token: &str) -> db::Result<Option<(Arc<Claims>, Living)>> {
    let Some(claims) = verified(janua, token) else { return Ok(None) };
    let found = living(janua, claims.sid).await?.filter(|living| living.person.account.id == claims.sub);
    Ok(found.map(|living| (claims, living)))
}

/// Whether a session of the service itself lives, and its user is a member of an organization. For sites that are for
/// members: they know a session by its ID, which proves nothing by itself.
pub async fn member_by_session(janua: &Janua, session: SessionId, org: OrgId) -> db::Result<bool> {
    let Some(living) = living(janua, session).await? else { return Ok(false) };
    if living.session.app_id.is_some() || living.session.scopes.is_some() {
        return Ok(false);
    }
    let live = janua.own::<Arc<Live>>();
    Ok(live.membership(janua, org, living.person.account.id).await?.is_some())
}

pub(crate) async fn living(janua: &Janua, id: SessionId) -> db::Result<Option<Living>> {
    janua.own::<Arc<Live>>().living(janua, id).await
}
