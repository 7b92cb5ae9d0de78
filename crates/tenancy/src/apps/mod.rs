//! Apps: what is stored of them, their keys, scopes, redirect URIs, slugs and end users.
pub mod end_users;
mod keys;
pub mod redirects;
pub mod scopes;
pub mod slugs;

use std::collections::HashSet;

use db::{Db, FromRow, Reach, Read, Row, Sql, Tx, holding, params, row};
use kernel::{Janua, clock::Timestamp, fault::Result, http::Key};
use schemars::JsonSchema;
use serde::Serialize;
use url::Url;

pub use self::keys::{Keyed, StoredAppKey};
pub use crate::ids::{AppKeyId, ApplicationId, Environment, KeyKind};
use crate::{
    apps::scopes::{DeclaredScopes, Scopes},
    events::About,
    gone,
    ids::{AccountId, OrgId, Role},
    quotas,
    sessions::audience::Audience,
};

/// The topic on which a change to an app or its keys is told.
pub const TOPIC: &str = crate::ids::topic::APP;

/// An application of an organization, whose end users sign in here.
#[derive(Debug, Clone)]
pub struct Application {
    pub id: ApplicationId,
    pub org_id: OrgId,
    pub owner_id: Option<AccountId>,
    pub name: String,
    pub slug: String,
    pub redirect_uris: Vec<String>,
    pub allowed_origins: Vec<String>,
    /// An object.
    pub settings: serde_json::Value,
    /// Its look on the sign-in pages: a picture that was encoded anew here, and a color such as `#1d4ed8`.
    pub logo_url: Option<String>,
    pub primary_color: Option<String>,
    /// The scopes that clients may request for its own servers.
    pub declared_scopes: DeclaredScopes,
    /// Whether codes always need PKCE; where not, a code without it needs the app's secret.
    pub require_pkce: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
row!(Application {
    id,
    org_id,
    owner_id,
    name,
    slug,
    redirect_uris,
    allowed_origins,
    settings,
    logo_url,
    primary_color,
    declared_scopes,
    require_pkce,
    created_at,
    updated_at
});

/// An app, and what the caller is in the organization it belongs to.
#[derive(Debug)]
pub struct Reached {
    pub application: Application,
    pub role: Role,
}

impl FromRow for Reached {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self { role: row.get("role")?, application: Application::from_row(row)? })
    }
}

/// A shared lock, so that sign-ins to one app do not wait for each other.
const KEEPING: Sql = Sql::two(
    "SELECT app_user.scopes, app_user.has_words, app_user.blocked_at, app_user.active_month, app.org_id FROM app
     LEFT JOIN app_user ON app_user.app_id = app.id AND app_user.account_id = $2 WHERE app.id = $1",
    "SELECT app_user.scopes, app_user.has_words, app_user.blocked_at, app_user.active_month, app.org_id FROM app
     LEFT JOIN app_user ON app_user.app_id = app.id AND app_user.account_id = $2 WHERE app.id = $1
     FOR KEY SHARE OF app",
);

impl About {
    pub fn app(application: &Application) -> Self {
        Self::application(application.id, application.org_id)
    }
}

impl From<&Application> for quotas::Pool {
    fn from(application: &Application) -> Self {
        Self { org: application.org_id, app: Some(application.id) }
    }
}

impl Application {
    /// Inserts a new app; `false` when another app has the slug, or it is held back for another organization. Counts
    /// against the organization's quota.
    pub async fn insert(&self, tx: &mut Tx, janua: &Janua) -> Result<bool> {
        let made = tx
            .exec(
                "INSERT INTO app (id, org_id, owner_id, name, slug, redirect_uris, allowed_origins, settings,
                                  created_at, updated_at, declared_scopes, require_pkce)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $11) ON CONFLICT (slug) DO NOTHING",
                params![
                    self.id,
                    self.org_id,
                    self.owner_id,
                    &self.name,
                    &self.slug,
                    &self.redirect_uris,
                    &self.allowed_origins,
                    &self.settings,
                    self.created_at,
                    &self.declared_scopes,
                    self.require_pkce
                ],
            )
            .await?;
        // Looked at afterwards: whoever gives the slug up at this moment has written it down by now.
        if made == 1 && slugs::is_held_back(tx, &self.slug, self.org_id, self.created_at).await? {
            tx.exec("DELETE FROM app WHERE id = $1", params![self.id]).await?;
            return Ok(false);
        }
        if made == 1 {
            quotas::spend(tx, janua, self, &quotas::APPS, 1).await?;
        }
        self.told(tx).await?;
        Ok(made == 1)
    }

    /// Locks the row until the transaction ends, and reads the app as it is now.
    pub async fn hold(tx: &mut Tx, id: ApplicationId) -> db::Result<Option<Self>> {
        tx.opt(holding!("SELECT * FROM app WHERE id = $1"), params![id]).await
    }

    /// Writes the app; `false` when another app has the slug, or it is held back for another organization: then
    /// nothing may be committed. The previous slug is held back from now on, on account of `actor`.
    pub async fn save(&self, tx: &mut Tx, actor: AccountId) -> db::Result<bool> {
        let (before,): (String,) = tx.one("SELECT slug FROM app WHERE id = $1", params![self.id]).await?;
        let sql = "SELECT id FROM app WHERE slug = $1 AND id <> $2";
        if tx.opt::<(String,)>(sql, params![&self.slug, self.id]).await?.is_some() {
            return Ok(false);
        }
        tx.exec(
            "UPDATE app SET name = $2, slug = $3, redirect_uris = $4, allowed_origins = $5, settings = $6,
                            updated_at = $7, primary_color = $8, declared_scopes = $9, require_pkce = $10
             WHERE id = $1",
            params![
                self.id,
                &self.name,
                &self.slug,
                &self.redirect_uris,
                &self.allowed_origins,
                &self.settings,
                self.updated_at,
                self.primary_color.clone(),
                &self.declared_scopes,
                self.require_pkce
            ],
        )
        .await?;
        if before != self.slug {
            if slugs::is_held_back(tx, &self.slug, self.org_id, self.updated_at).await? {
                return Ok(false);
            }
            slugs::hold_back(tx, &before, (self.org_id, Some(actor)), self.updated_at).await?;
        }
        self.told(tx).await?;
        Ok(true)
    }

    /// Another logo, or none.
    pub async fn set_logo(&mut self, tx: &mut Tx, url: Option<&str>, now: Timestamp) -> db::Result<()> {
        (self.logo_url, self.updated_at) = (url.map(str::to_owned), now);
        let sql = "UPDATE app SET logo_url = $2, updated_at = $3 WHERE id = $1";
        tx.exec(sql, params![self.id, self.logo_url.clone(), now]).await?;
        self.told(tx).await
    }

    /// Deletes what may be many rows, some at a time, before the app itself is deleted: on SQLite every other writer would
    /// wait for all of it. Rows that are added meanwhile are deleted with the app.
    pub async fn empty(janua: &Janua, id: ApplicationId) -> db::Result<()> {
        gone::empty_app(janua, id).await?;
        for sql in [
            "DELETE FROM session WHERE id IN (SELECT id FROM session WHERE app_id = $1 LIMIT $2)",
            "DELETE FROM trusted_device WHERE hash IN (SELECT hash FROM trusted_device WHERE app_id = $1 LIMIT $2)",
            "DELETE FROM app_user_word WHERE app_id = $1 AND (account_id, word) IN
                 (SELECT account_id, word FROM app_user_word WHERE app_id = $1 LIMIT $2)",
            "DELETE FROM app_user WHERE app_id = $1 AND account_id IN
                 (SELECT account_id FROM app_user WHERE app_id = $1 LIMIT $2)",
        ] {
            janua.db.sweep(sql, params![id]).await?;
        }
        Ok(())
    }

    /// Its keys, people and sessions go with it. Call [`empty`](Self::empty) before. Its slug stays with the
    /// organization for a while, on account of `actor`.
    pub async fn delete(&self, tx: &mut Tx, janua: &Janua, actor: AccountId) -> db::Result<()> {
        gone::app(tx, janua, self.id).await?;
        slugs::hold_back(tx, &self.slug, (self.org_id, Some(actor)), janua.clock.now()).await?;
        let keys = StoredAppKey::count(tx, self.id).await?;
        quotas::give_back(tx, self.org_id, &quotas::KEYS, keys).await?;
        quotas::give_back(tx, self.org_id, &quotas::APPS, 1).await?;
        tx.exec("DELETE FROM app WHERE id = $1", params![self.id]).await?;
        self.told(tx).await?;
        tx.notify(Reach::EveryNode, crate::ids::topic::SESSION, "").await
    }

    /// Sets whether the app has a webhook that wants its events.
    pub async fn set_listening(tx: &mut Tx, id: ApplicationId, has_webhooks: bool) -> db::Result<()> {
        tx.exec("UPDATE app SET has_webhooks = $2 WHERE id = $1", params![id, has_webhooks]).await?;
        Ok(())
    }

    /// The first thousand of an organization, oldest first.
    pub async fn of_org(db: &Db, org: OrgId) -> db::Result<Vec<Self>> {
        db.all("SELECT * FROM app WHERE org_id = $1 ORDER BY created_at, id LIMIT 1000", params![org]).await
    }

    pub async fn all_of(tx: &mut Tx, org: OrgId) -> db::Result<Vec<Self>> {
        tx.all("SELECT * FROM app WHERE org_id = $1 ORDER BY created_at, id", params![org]).await
    }

    /// Those of all organizations a person is in, newest first.
    pub async fn page(db: &Db, account: AccountId, below: &Key, most: u32) -> db::Result<Vec<Reached>> {
        db.all(
            "SELECT app.*, org_member.role FROM app JOIN org_member ON org_member.org_id = app.org_id
             WHERE org_member.account_id = $1 AND (app.created_at, app.id) < ($2, $3)
             ORDER BY app.created_at DESC, app.id DESC LIMIT $4",
            params![account, below.at, &below.id, most],
        )
        .await
    }

    /// As a member of its organization reaches it.
    pub async fn reach(db: &Db, id: ApplicationId, account: AccountId) -> db::Result<Option<Reached>> {
        db.opt(
            "SELECT app.*, org_member.role FROM app JOIN org_member ON org_member.org_id = app.org_id
             WHERE app.id = $1 AND org_member.account_id = $2",
            params![id, account],
        )
        .await
    }

    pub async fn find(mut from: impl Read, id: ApplicationId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM app WHERE id = $1", params![id]).await
    }

    pub async fn find_by_slug(db: &Db, slug: &str) -> db::Result<Option<Self>> {
        db.opt("SELECT * FROM app WHERE slug = $1", params![slug]).await
    }

    /// The app that has proven this host, or a domain above it, to be its own.
    pub async fn of_domain(db: &Db, host: &str) -> db::Result<Option<ApplicationId>> {
        let host = host.trim_end_matches('.').to_lowercase();
        let mut name = Some(host.as_str());
        while let Some(domain) = name.filter(|name| name.contains('.')) {
            let sql = "SELECT app_id FROM app_domain WHERE domain = $1 AND verified_at IS NOT NULL";
            if let Some((id,)) = db.opt(sql, params![domain]).await? {
                return Ok(Some(id));
            }
            name = domain.split_once('.').map(|(_, above)| above);
        }
        Ok(None)
    }

    /// The organization whose app has proven this host, or the nearest domain above it, by a TXT record that stands.
    pub async fn org_of_domain(mut from: impl Read, host: &str) -> db::Result<Option<OrgId>> {
        let mut name = Some(host);
        while let Some(domain) = name.filter(|name| name.contains('.')) {
            let sql = "SELECT org_id FROM app_domain
                       WHERE domain = $1 AND verified_at IS NOT NULL AND missing_since IS NULL";
            if let Some((org,)) = from.opt(sql, params![domain]).await? {
                return Ok(Some(org));
            }
            name = domain.split_once('.').map(|(_, above)| above);
        }
        Ok(None)
    }

    /// A domain that an app of an organization has proven: the first one.
    pub async fn domain_of_org(db: &Db, org: OrgId) -> db::Result<Option<String>> {
        let sql = "SELECT app_domain.domain FROM app_domain JOIN app ON app.id = app_domain.app_id
                   WHERE app.org_id = $1 AND app_domain.verified_at IS NOT NULL
                   ORDER BY app_domain.verified_at, app_domain.domain LIMIT 1";
        Ok(db.opt(sql, params![org]).await?.map(|(domain,)| domain))
    }

    /// Whether pages of this origin are the app's.
    pub async fn allows(db: &Db, id: ApplicationId, origin: &str) -> db::Result<bool> {
        let sql = "SELECT allowed_origins FROM app WHERE id = $1";
        let found: Option<(Vec<String>,)> = db.opt(sql, params![id]).await?;
        if found.is_some_and(|(origins,)| origins.iter().any(|allowed| allowed == origin)) {
            return Ok(true);
        }
        // A domain that the app's site is served under.
        let Some(domain) = origin.strip_prefix("https://") else { return Ok(false) };
        let sql = "SELECT id FROM app_domain WHERE app_id = $1 AND domain = $2 AND status = 'active'";
        Ok(db.opt::<(String,)>(sql, params![id, domain]).await?.is_some())
    }

    /// The origins of all apps, those of domains that are served among them.
    pub async fn origins(db: &Db) -> db::Result<HashSet<String>> {
        let sql = "SELECT allowed_origins FROM app WHERE allowed_origins <> '[]'";
        let found: Vec<(Vec<String>,)> = db.all(sql, vec![]).await?;
        let served: Vec<(String,)> = db.all("SELECT domain FROM app_domain WHERE status = 'active'", vec![]).await?;
        let served = served.into_iter().map(|(domain,)| format!("https://{domain}"));
        Ok(found.into_iter().flat_map(|(origins,)| origins).chain(served).collect())
    }

    /// The origins of served domains whose pages may ask for passkeys of this service, the oldest first.
    pub async fn passkey_origins(db: &Db) -> db::Result<Vec<String>> {
        let sql = "SELECT domain FROM app_domain WHERE passkeys_at IS NOT NULL AND status = 'active'
                   ORDER BY passkeys_at, id LIMIT 100";
        let found: Vec<(String,)> = db.all(sql, vec![]).await?;
        Ok(found.into_iter().map(|(domain,)| format!("https://{domain}")).collect())
    }

    /// Whether pages of this origin may ask for passkeys of this service, to come in to this app.
    pub async fn may_ask_for_passkeys(db: &Db, id: ApplicationId, origin: &str) -> db::Result<bool> {
        let Some(domain) = origin.strip_prefix("https://") else { return Ok(false) };
        let sql = "SELECT id FROM app_domain
                   WHERE app_id = $1 AND domain = $2 AND status = 'active' AND passkeys_at IS NOT NULL";
        Ok(db.opt::<(String,)>(sql, params![id, domain]).await?.is_some())
    }

    /// Notes a sign-in of an end user and the granted scopes, unless the user is blocked. The app's row stays locked
    /// until the transaction ends: a deletion waits for it, and then removes the new session, too.
    pub async fn greet(
        tx: &mut Tx,
        janua: &Janua,
        id: ApplicationId,
        account: AccountId,
        scopes: Option<&Scopes>,
    ) -> Result<Greeting> {
        let now = janua.clock.now();
        let there = tx.opt::<Greeted>(KEEPING, params![id, account]).await?;
        let Some(there) = there else { return Ok(Greeting::AppGone) };
        if there.blocked_at.is_some() {
            return Ok(Greeting::Blocked);
        }
        let is_found = there.has_words == Some(true);
        let before = there.has_words.map(|_| there.scopes);
        // What it may do at its own servers is between the person and them.
        let scopes = scopes.map(Scopes::without_declared);
        // Who let it know more before still does.
        let known = match (&before, &scopes) {
            (Some(None), _) | (_, None) => None,
            (Some(Some(before)), Some(now)) => Some(before.clone().and(now)),
            (None, Some(now)) => Some(now.clone()),
        };
        let is_same = is_found && before.as_ref().is_some_and(|before| *before == known);
        let month = now.month().0;
        if there.active_month != Some(month) {
            let pool = quotas::Pool { org: there.org_id, app: Some(id) };
            // A limit keeps new users out, never those that the app has.
            match before {
                None => quotas::spend(tx, janua, pool, &quotas::ACTIVE_USERS, 1).await?,
                Some(_) => quotas::spend_beyond(tx, janua, pool, &quotas::ACTIVE_USERS, 1).await?,
            }
        }
        let greeted = tx
            .exec(
                "INSERT INTO app_user (app_id, account_id, first_sign_in_at, last_sign_in_at, scopes, active_month)
                 SELECT id, $2, $3, $3, $4, $5 FROM app WHERE id = $1
                 ON CONFLICT (app_id, account_id) DO UPDATE SET last_sign_in_at = $3, scopes = $4, active_month = $5",
                params![id, account, now, known.as_ref(), month],
            )
            .await?;
        if greeted == 1 && !is_same {
            end_users::note(tx, id, account).await?;
        }
        Ok(if greeted == 1 { Greeting::Welcome } else { Greeting::AppGone })
    }

    /// Gives an app a plan of its own, or takes it: empty, and it shares its organization's. Billing says so, in the commit that
    /// applies what was paid.
    pub async fn set_plan(tx: &mut Tx, id: ApplicationId, plan: &str) -> db::Result<()> {
        tx.exec("UPDATE app SET plan = $2 WHERE id = $1 AND plan <> $2", params![id, plan]).await.map(drop)
    }

    /// The plan that an app has for itself, if it has one.
    pub async fn own_plan(mut from: impl Read, id: ApplicationId) -> db::Result<Option<String>> {
        let plan: Option<(String,)> = from.opt("SELECT plan FROM app WHERE id = $1", params![id]).await?;
        Ok(plan.map(|(plan,)| plan).filter(|plan| !plan.is_empty()))
    }

    /// Counts a user who renews a session of an app as active in this month, unless that was done.
    pub(crate) async fn note_active(
        tx: &mut Tx,
        janua: &Janua,
        id: ApplicationId,
        account: AccountId,
    ) -> db::Result<()> {
        let sql = "UPDATE app_user SET active_month = $3 WHERE app_id = $1 AND account_id = $2 AND active_month < $3";
        if tx.exec(sql, params![id, account, janua.clock.now().month().0]).await? == 0 {
            return Ok(());
        }
        match Self::find(&mut *tx, id).await? {
            Some(app) => quotas::spend_beyond(tx, janua, &app, &quotas::ACTIVE_USERS, 1).await,
            None => Ok(()),
        }
    }

    async fn told(&self, tx: &mut Tx) -> db::Result<()> {
        tx.notify(Reach::EveryNode, TOPIC, self.id.to_string()).await
    }
}

/// The outcome of a sign-in at an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    Welcome,
    Blocked,
    AppGone,
}

/// The row of an app, with that of a returning end user.
struct Greeted {
    scopes: Option<Scopes>,
    /// None for a user who is new to the app.
    has_words: Option<bool>,
    blocked_at: Option<Timestamp>,
    /// The month they were last counted in.
    active_month: Option<Timestamp>,
    org_id: OrgId,
}
row!(Greeted { scopes, has_words, blocked_at, active_month, org_id });

/// An app that a user signed in to.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsedApp {
    pub app_id: ApplicationId,
    pub name: String,
    pub first_sign_in_at: Timestamp,
    pub last_sign_in_at: Timestamp,
}
row!(UsedApp { app_id, name, first_sign_in_at, last_sign_in_at });

impl UsedApp {
    pub async fn of(db: &Db, account: AccountId) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT app.id AS app_id, app.name, app_user.first_sign_in_at, app_user.last_sign_in_at
             FROM app_user JOIN app ON app.id = app_user.app_id WHERE app_user.account_id = $1
             ORDER BY app_user.first_sign_in_at, app.id LIMIT 1000",
            params![account],
        )
        .await
    }
}

/// Whether a token counts at a server of this app: on a domain it has proven to be its own, or on loopback at one of its
/// origins.
pub async fn counts_at(db: &Db, audience: &Audience, app: ApplicationId) -> db::Result<bool> {
    for url in audience.iter().filter_map(target) {
        let is_its_own = if redirects::is_loopback(&url) {
            Application::allows(db, app, &url.origin().ascii_serialization()).await?
        } else {
            Application::of_domain(db, url.host_str().unwrap_or_default()).await? == Some(app)
        };
        if is_its_own {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A place where tokens count (RFC 8707): a whole URL without a fragment. On the wire it stays as it was written.
pub fn target(resource: &str) -> Option<Url> {
    // What is put right while reading is not what was written.
    let is_odd = resource.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\');
    let url = Url::parse(resource).ok().filter(|url| url.has_host() && url.fragment().is_none())?;
    let is_plain = url.username().is_empty() && url.password().is_none();
    (is_plain && !is_odd && matches!(url.scheme(), "https" | "http")).then_some(url)
}
