//! Sessions: one for each sign-in, with a refresh token that turns over on every use. Beside them the sign-in itself, access
//! and ID tokens, and the keys that sign them.
//!
//! A refresh token is `session.generation.digest`, the digest keyed with the master key: nothing of it is stored, and
//! the successor of a generation is always the same, which is what a client that lost the answer needs to get again.
mod answers;
pub mod audience;
mod device;
pub mod id_tokens;
pub mod keys;
pub mod sign_in;
pub mod tokens;

use std::{net::IpAddr, time::Duration};

use db::{Db, FromRow, Reach, Read, Row, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{Secret, same},
    http::network_of,
};

pub use self::device::device_name;
use crate::events::happenings::SessionRevoked;
pub use crate::ids::SessionId;
use crate::{
    accounts::{
        Account,
        factors::{self},
    },
    apps::{
        Application,
        scopes::{Scope, Scopes},
    },
    events::{self, By, watch},
    ids::{AccountId, ApplicationId, Factor, OrgId},
    sessions::audience::Audience,
};

/// A client that did not hear the answer may ask again for this long.
const GRACE: Duration = Duration::from_secs(10);
pub(crate) const TOPIC: &str = crate::ids::topic::SESSION;

/// A session as stored. Handlers take [`enter::Session`](crate::enter::Session).
#[derive(Debug, Clone)]
pub struct StoredSession {
    pub id: SessionId,
    pub account_id: AccountId,
    pub generation: i64,
    pub rotated_at: Timestamp,
    pub created_at: Timestamp,
    /// The moment of the user's latest proof.
    pub authenticated_at: Timestamp,
    /// And when by which kind of proof. An old proof is no fresher for a weaker one that came after it.
    pub password_at: Option<Timestamp>,
    pub factor_at: Option<Timestamp>,
    pub passkey_at: Option<Timestamp>,
    pub last_seen_at: Timestamp,
    /// Without use it ends here; with use it moves, but never past `ends_at`.
    pub expires_at: Timestamp,
    pub ends_at: Timestamp,
    /// The methods of the user's proof (`pwd`, `mail`, …).
    pub methods: Vec<String>,
    pub device: String,
    pub user_agent: String,
    pub ip: String,
    pub revoked_at: Option<Timestamp>,
    /// The organization it acts for.
    pub org_id: Option<OrgId>,
    /// The app it belongs to.
    pub app_id: Option<ApplicationId>,
    /// The client it belongs to, where that is no app.
    pub client: Option<String>,
    /// The scopes that the user granted to a client; none in the user's own sessions.
    pub scopes: Option<Scopes>,
    /// Where its tokens count, if not here. One access token may count at fewer of them.
    pub resource: Option<Audience>,
}
row!(StoredSession {
    id,
    account_id,
    generation,
    rotated_at,
    created_at,
    authenticated_at,
    password_at,
    factor_at,
    passkey_at,
    last_seen_at,
    expires_at,
    ends_at,
    methods,
    device,
    user_agent,
    ip,
    revoked_at,
    org_id,
    app_id,
    client,
    scopes,
    resource
});

/// A proof of identity in a session.
#[derive(Debug, Clone, Copy)]
pub enum Proof {
    Password,
    Factor(Factor),
    Passkey,
}

impl Proof {
    /// As tokens name it.
    fn methods(self) -> Vec<&'static str> {
        match self {
            Self::Password => vec!["pwd"],
            Self::Factor(factor) => vec![factor.method(), "mfa"],
            Self::Passkey => vec!["passkey", "mfa"],
        }
    }
}

fn is_among(network: IpAddr, seen: &[(String,)]) -> bool {
    seen.iter().any(|(ip,)| ip.parse().is_ok_and(|ip| network_of(ip) == network))
}

struct Seen {
    anywhere: Option<String>,
    here: Option<String>,
}
row!(Seen { anywhere, here });

impl StoredSession {
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && now < self.expires_at && now < self.ends_at
    }

    /// Whose it is, if it is not the person's own: an app's id, or what a client that is no app is called.
    pub fn holder(&self) -> Option<String> {
        self.app_id.map(|id| id.to_string()).or_else(|| self.client.clone())
    }

    /// Whether it goes on after its first access token: a client must have been let do that.
    pub fn may_go_on(&self) -> bool {
        self.scopes.as_ref().is_none_or(|scopes| scopes.has(Scope::OfflineAccess))
    }

    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        tx.send(
            "INSERT INTO session (id, account_id, generation, rotated_at, created_at, authenticated_at, last_seen_at,
                                  expires_at, ends_at, methods, device, user_agent, ip, org_id, app_id,
                                  client, scopes, resource, password_at, factor_at, passkey_at)
             VALUES ($1, $2, 0, $3, $3, $12, $3, $4, $5, $6, $7, $8, $9, $10, $11, $13, $14, $15, $16, $17, $18)",
            params![
                self.id,
                self.account_id,
                self.created_at,
                self.expires_at,
                self.ends_at,
                &self.methods,
                &self.device,
                &self.user_agent,
                &self.ip,
                self.org_id,
                self.app_id,
                self.authenticated_at,
                self.client.clone(),
                self.scopes.as_ref(),
                self.resource.as_ref(),
                self.password_at,
                self.factor_at,
                self.passkey_at
            ],
        )
        .await
    }

    pub async fn find(mut from: impl Read, id: SessionId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM session WHERE id = $1", params![id]).await
    }

    /// The living sessions of a person, newest first.
    pub async fn of(db: &Db, account_id: AccountId, now: Timestamp) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM session WHERE account_id = $1 AND revoked_at IS NULL AND expires_at > $2 AND ends_at > $2
             ORDER BY created_at DESC, id DESC LIMIT 200",
            params![account_id, now],
        )
        .await
    }

    /// Whether the person of an email has signed in from this network before, as far as sessions are kept. Those of clients do
    /// not count: they begin where the client's server is.
    pub async fn knows_network(db: &Db, email_key: &str, network: IpAddr) -> db::Result<bool> {
        let sql = "SELECT DISTINCT session.ip FROM session JOIN account ON account.id = session.account_id
                   WHERE account.email_key = $1 AND session.scopes IS NULL LIMIT 1000";
        Ok(is_among(network, &db.all(sql, params![email_key]).await?))
    }

    /// The same for an account.
    pub async fn knows_network_of(db: &Db, account_id: AccountId, network: IpAddr) -> db::Result<bool> {
        let sql = "SELECT DISTINCT ip FROM session WHERE account_id = $1 AND scopes IS NULL LIMIT 1000";
        Ok(is_among(network, &db.all(sql, params![account_id]).await?))
    }

    /// Whether this person was seen on such a device before.
    pub async fn knows_device(tx: &mut Tx, account_id: AccountId, device: &str) -> db::Result<(bool, bool)> {
        let seen: Seen = tx
            .one(
                "SELECT (SELECT device FROM session WHERE account_id = $1 LIMIT 1) AS anywhere,
                        (SELECT device FROM session WHERE account_id = $1 AND device = $2 LIMIT 1) AS here",
                params![account_id, device],
            )
            .await?;
        Ok((seen.anywhere.is_some(), seen.here.is_some()))
    }

    /// Something was proven in it just now.
    pub async fn proved(&self, tx: &mut Tx, proof: Proof, now: Timestamp) -> db::Result<()> {
        let mut methods = self.methods.clone();
        let new = proof.methods().into_iter().filter(|new| !self.methods.iter().any(|method| method == new));
        methods.extend(new.map(str::to_owned));
        let sql = match proof {
            Proof::Password => {
                "UPDATE session SET methods = $2, authenticated_at = $3, password_at = $3 WHERE id = $1"
            }
            Proof::Factor(_) => {
                "UPDATE session SET methods = $2, authenticated_at = $3, factor_at = $3 WHERE id = $1"
            }
            Proof::Passkey => "UPDATE session SET methods = $2, authenticated_at = $3, passkey_at = $3 WHERE id = $1",
        };
        tx.exec(sql, params![self.id, &methods, now]).await?;
        tx.notify(Reach::EveryNode, TOPIC, self.id.to_string()).await
    }

    /// The living sessions of a person in an app, newest first.
    pub async fn of_app(
        db: &Db,
        account_id: AccountId,
        app_id: ApplicationId,
        now: Timestamp,
    ) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM session WHERE account_id = $1 AND app_id = $3 AND revoked_at IS NULL AND expires_at > $2
               AND ends_at > $2
             ORDER BY created_at DESC, id DESC LIMIT 200",
            params![account_id, now, app_id],
        )
        .await
    }

    /// Ends one session of a person; `false` when there was none to end.
    pub async fn revoke(tx: &mut Tx, account_id: AccountId, id: SessionId, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE session SET revoked_at = $3
                   WHERE id = $2 AND account_id = $1 AND revoked_at IS NULL AND expires_at > $3 AND ends_at > $3";
        let ended = tx.exec(sql, params![account_id, id, now]).await? == 1;
        if ended {
            tx.notify(Reach::EveryNode, TOPIC, id.to_string()).await?;
        }
        Ok(ended)
    }

    /// Whether it is behind the gate of the second factor, be it by a trusted device.
    pub fn is_strong(&self) -> bool {
        self.gate_mark().is_some()
    }

    /// What it passed the gate with: `mfa` where a second factor or a passkey was proven in it, `trusted` where a trusted
    /// device stood in for that.
    pub fn gate_mark(&self) -> Option<&'static str> {
        ["mfa", "trusted"].into_iter().find(|mark| self.methods.iter().any(|method| method == mark))
    }

    /// Ends the sessions of a person that act for an organization or belong to an app of it; answers which.
    pub async fn revoke_in(
        tx: &mut Tx,
        org: OrgId,
        account_id: AccountId,
        now: Timestamp,
    ) -> db::Result<Vec<SessionId>> {
        Account::hold(tx, account_id).await?;
        let ended: Vec<(SessionId,)> = tx
            .put(
                "UPDATE session SET revoked_at = $3
                 WHERE account_id = $2 AND revoked_at IS NULL AND expires_at > $3 AND ends_at > $3
                   AND (org_id = $1 OR app_id IN (SELECT id FROM app WHERE org_id = $1))
                 RETURNING id",
                params![org, account_id, now],
            )
            .await?;
        told(tx, ended).await
    }

    /// Ends all sessions of a user but one; answers which. A transaction that begins a session locks the account,
    /// too: a session begins before this and is ended as well, or after it and needs the proofs that are required
    /// then. Unfinished additions of a factor end, too.
    pub async fn revoke_all(
        tx: &mut Tx,
        account_id: AccountId,
        except: Option<SessionId>,
        now: Timestamp,
    ) -> db::Result<Vec<SessionId>> {
        Account::hold(tx, account_id).await?;
        factors::void_open(tx, account_id, now).await?;
        let except = except.map(|id| id.to_string()).unwrap_or_default();
        let ended: Vec<(SessionId,)> = tx
            .put(
                "UPDATE session SET revoked_at = $2
                 WHERE account_id = $1 AND revoked_at IS NULL AND expires_at > $2 AND ends_at > $2 AND id <> $3
                 RETURNING id",
                params![account_id, now, except],
            )
            .await?;
        told(tx, ended).await
    }

    /// Ends the sessions of a person in an app; answers which.
    pub async fn revoke_in_app(
        tx: &mut Tx,
        account_id: AccountId,
        app_id: ApplicationId,
        now: Timestamp,
    ) -> db::Result<Vec<SessionId>> {
        Account::hold(tx, account_id).await?;
        let ended: Vec<(SessionId,)> = tx
            .put(
                "UPDATE session SET revoked_at = $2
                 WHERE account_id = $1 AND app_id = $3 AND revoked_at IS NULL AND expires_at > $2 AND ends_at > $2
                 RETURNING id",
                params![account_id, now, app_id],
            )
            .await?;
        told(tx, ended).await
    }

    /// Ends what a client has of a person, at one place its tokens count; answers which.
    pub async fn revoke_granted(
        tx: &mut Tx,
        account_id: AccountId,
        client: &str,
        resource: &str,
        now: Timestamp,
    ) -> db::Result<Vec<SessionId>> {
        Account::hold(tx, account_id).await?;
        let ended: Vec<(SessionId,)> = tx
            .put(
                "UPDATE session SET revoked_at = $2
                 WHERE account_id = $1 AND revoked_at IS NULL AND expires_at > $2 AND ends_at > $2
                   AND scopes IS NOT NULL AND COALESCE(app_id, client, '') = $3 AND COALESCE(resource, '') = $4
                 RETURNING id",
                params![account_id, now, client, resource],
            )
            .await?;
        told(tx, ended).await
    }
}

/// Ends one session of a person and writes down why; `false` when there was none to end.
pub async fn end(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    account_id: AccountId,
    id: SessionId,
    reason: &'static str,
) -> db::Result<bool> {
    let ended = StoredSession::revoke(tx, account_id, id, janua.clock.now()).await?;
    if ended {
        let event = SessionRevoked { session_id: id, reason };
        events::record(tx, janua, by, Some(account_id), &event).await?;
    }
    Ok(ended)
}

/// Ends all sessions of a person but one, and writes down why.
pub async fn end_all(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    account_id: AccountId,
    except: Option<SessionId>,
    reason: &'static str,
) -> db::Result<()> {
    for session in StoredSession::revoke_all(tx, account_id, except, janua.clock.now()).await? {
        events::record(tx, janua, by, Some(account_id), &SessionRevoked { session_id: session, reason }).await?;
    }
    Ok(())
}

/// Ends all sessions of a person in an app, and writes down why.
pub async fn end_in_app(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    account_id: AccountId,
    app_id: ApplicationId,
    reason: &'static str,
) -> db::Result<()> {
    for session in StoredSession::revoke_in_app(tx, account_id, app_id, janua.clock.now()).await? {
        events::record(tx, janua, by, Some(account_id), &SessionRevoked { session_id: session, reason }).await?;
    }
    Ok(())
}

/// Every node hears which sessions ended.
async fn told(tx: &mut Tx, ended: Vec<(SessionId,)>) -> db::Result<Vec<SessionId>> {
    for (id,) in &ended {
        tx.notify(Reach::EveryNode, TOPIC, id.to_string()).await?;
    }
    Ok(ended.into_iter().map(|(id,)| id).collect())
}

/// The refresh token of one generation of a session.
pub fn refresh_token(janua: &Janua, id: SessionId, generation: i64) -> Secret {
    let digest = janua.vault.mac("refresh-token", format!("{id}.{generation}").as_bytes());
    format!("{id}.{generation}.{digest}").into()
}

/// The session and generation a refresh token names, if we made it.
pub fn read_refresh_token(janua: &Janua, token: &Secret) -> Option<(SessionId, i64)> {
    let mut parts = token.expose().split('.');
    let (id, generation) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    same(token.expose().as_bytes(), refresh_token(janua, id, generation).expose().as_bytes())
        .then_some((id, generation))
}

/// The outcome of a refresh.
#[derive(Debug)]
pub enum Turned {
    /// The session goes on with this generation.
    On(Box<StoredSession>),
    /// It was used before, and not just now: there is a copy of it.
    Reused(Box<StoredSession>),
    Ended,
}

/// A session that was turned over, and when it was seen before.
struct Moved {
    session: StoredSession,
    before: Timestamp,
}

impl FromRow for Moved {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self { before: row.get("seen_before_at")?, session: StoredSession::from_row(row)? })
    }
}

/// Rotates the refresh token of a session, by one conditional statement: of many at once one succeeds. The session of
/// a client rotates for that client alone; a call by any other client changes nothing.
pub async fn turn(
    tx: &mut Tx,
    janua: &Janua,
    id: SessionId,
    generation: i64,
    through: Option<&str>,
) -> db::Result<Turned> {
    let now = janua.clock.now();
    let moved: Vec<Moved> = tx
        .put(
            "UPDATE session SET generation = generation + 1, rotated_at = $3, seen_before_at = last_seen_at, last_seen_at = $3,
                                expires_at = CASE WHEN $4 < ends_at THEN $4 ELSE ends_at END
             WHERE id = $1 AND generation = $2 AND revoked_at IS NULL AND expires_at > $3 AND ends_at > $3
               AND COALESCE(app_id, client, '') = $5
             RETURNING *",
            params![
                id,
                generation,
                now,
                now.plus(janua.config.of::<crate::Settings>().session_idle_life),
                through.unwrap_or_default()
            ],
        )
        .await?;
    if let Some(Moved { session, before }) = moved.into_iter().next() {
        if let Some(app) = session.app_id {
            Application::note_active(tx, janua, app, session.account_id).await?;
            let what = watch::What::Refreshed { before };
            watch::tell(tx, janua, Some(app), Some(session.account_id), what).await?;
        }
        return Ok(Turned::On(Box::new(session)));
    }
    let there: Option<StoredSession> = tx.opt("SELECT * FROM session WHERE id = $1", params![id]).await?;
    Ok(match there.filter(|session| session.is_alive(now) && session.holder().as_deref() == through) {
        Some(session) if session.generation == generation + 1 && now.since(session.rotated_at) <= GRACE => {
            Turned::On(Box::new(session))
        }
        Some(session) => Turned::Reused(Box::new(session)),
        None => Turned::Ended,
    })
}
