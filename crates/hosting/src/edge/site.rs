//! The site of an app as stored: its settings, its hosts, and which deployment is live.
use db::{Db, FromRow, Reach, Read, Row, Tx, params, row};
use kernel::{Janua, clock::Timestamp, id::Id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{Application, ApplicationId},
    orgs::OrgId,
};

use crate::{deployments::DeploymentId, words::words};

pub type SiteId = Id<Site>;

/// The topic on which a change to a site, its hosts or its live deployment is told; the body is the app's ID.
pub const TOPIC: &str = "site";

words! {
    /// The server that delivers a site to browsers.
    pub enum Provider {
        /// The edge in this server.
        Edge = "edge",
        /// A distribution at another provider, in front of the edge.
        External = "external",
    }
}

words! {
    pub enum SiteStatus {
        Provisioning = "provisioning",
        Active = "active",
        Disabled = "disabled",
        Failed = "failed",
    }
}

words! {
    /// Whether navigations to unknown paths get the page of a client-side router.
    pub enum SpaFallback {
        /// If the site has no `/404.html`.
        Auto = "auto",
        On = "on",
        Off = "off",
    }
}

words! {
    /// Access to previews.
    pub enum PreviewAccess {
        /// Everybody who knows the URL.
        Public = "public",
        /// Signed-in members of the organization.
        Members = "members",
        Off = "off",
    }
}

words! {
    /// Access to the site.
    pub enum SiteAccess {
        Public = "public",
        Members = "members",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteSettings {
    pub spa_fallback: SpaFallback,
    pub preview_access: PreviewAccess,
    pub access: SiteAccess,
    /// How long files of replaced deployments stay reachable.
    pub asset_grace_hours: u32,
    /// Whether deployments are refused.
    pub locked: bool,
    pub locked_reason: Option<String>,
}

impl Default for SiteSettings {
    fn default() -> Self {
        Self {
            spa_fallback: SpaFallback::Auto,
            preview_access: PreviewAccess::Public,
            access: SiteAccess::Public,
            asset_grace_hours: 24,
            locked: false,
            locked_reason: None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Site {
    pub id: SiteId,
    pub app_id: ApplicationId,
    pub org_id: OrgId,
    pub provider: Provider,
    pub status: SiteStatus,
    pub cname: String,
    pub settings: SiteSettings,
    pub external_id: Option<String>,
    pub external_host: Option<String>,
    pub error: Option<String>,
    pub active_id: Option<DeploymentId>,
    pub active_number: i64,
    pub last_number: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl FromRow for Site {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let settings: serde_json::Value = row.get("settings")?;
        Ok(Self {
            id: row.get("id")?,
            app_id: row.get("app_id")?,
            org_id: row.get("org_id")?,
            provider: row.get("provider")?,
            status: row.get("status")?,
            cname: row.get("cname")?,
            settings: serde_json::from_value(settings).unwrap_or_default(),
            external_id: row.get("external_id")?,
            external_host: row.get("external_host")?,
            error: row.get("error")?,
            active_id: row.get("active_id")?,
            active_number: row.get("active_number")?,
            last_number: row.get("last_number")?,
            created_at: row.get("created_at")?,
            updated_at: row.get("updated_at")?,
        })
    }
}

impl Site {
    pub async fn find(mut from: impl Read, app: ApplicationId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM site WHERE app_id = $1", params![app]).await
    }

    /// The site of an app, created if there is none. The app must be locked. Answers whether it is new.
    pub async fn provision(tx: &mut Tx, janua: &Janua, app: &Application) -> db::Result<(Self, bool)> {
        if let Some(site) = Self::find(&mut *tx, app.id).await? {
            return Ok((site, false));
        }
        let now = janua.clock.now();
        let site = Self {
            id: SiteId::new(&janua.entropy, now),
            app_id: app.id,
            org_id: app.org_id,
            provider: Provider::Edge,
            status: SiteStatus::Active,
            cname: data_encoding::BASE32_NOPAD.encode(&janua.entropy.bytes::<10>()).to_lowercase(),
            settings: SiteSettings::default(),
            external_id: None,
            external_host: None,
            error: None,
            active_id: None,
            active_number: 0,
            last_number: 0,
            created_at: now,
            updated_at: now,
        };
        tx.exec(
            "INSERT INTO site (app_id, id, org_id, provider, status, cname, settings, active_number, last_number,
                               created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, $8, $8)",
            params![
                site.app_id,
                site.id,
                site.org_id,
                site.provider,
                site.status,
                &site.cname,
                &serde_json::to_value(&site.settings).unwrap_or_default(),
                now
            ],
        )
        .await?;
        changed(tx, app.id).await?;
        Ok((site, true))
    }

    pub async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "UPDATE site SET provider = $2, status = $3, settings = $4, external_id = $5, external_host = $6, error = $7,
                             updated_at = $8
             WHERE app_id = $1",
            params![
                self.app_id,
                self.provider,
                self.status,
                &serde_json::to_value(&self.settings).unwrap_or_default(),
                self.external_id.clone(),
                self.external_host.clone(),
                self.error.clone(),
                self.updated_at
            ],
        )
        .await?;
        changed(tx, self.app_id).await
    }

    /// The number of the next deployment.
    pub async fn next_number(tx: &mut Tx, app: ApplicationId) -> db::Result<i64> {
        let sql = "UPDATE site SET last_number = last_number + 1 WHERE app_id = $1 RETURNING last_number";
        let numbers: Vec<(i64,)> = tx.put(sql, params![app]).await?;
        Ok(numbers.first().map(|(number,)| *number).unwrap_or_default())
    }

    /// Points production at a deployment, unless a later one is live.
    pub async fn activate(
        tx: &mut Tx,
        app: ApplicationId,
        deployment: DeploymentId,
        number: i64,
        now: Timestamp,
    ) -> db::Result<bool> {
        let sql = "UPDATE site SET active_id = $2, active_number = $3, updated_at = $4
                   WHERE app_id = $1 AND active_number < $3";
        let is_live = tx.exec(sql, params![app, deployment, number, now]).await? == 1;
        if is_live {
            changed(tx, app).await?;
        }
        Ok(is_live)
    }
}

/// Tells every node that the routes of an app's hosts have changed.
pub async fn changed(tx: &mut Tx, app: ApplicationId) -> db::Result<()> {
    tx.notify(Reach::EveryNode, TOPIC, app.to_string()).await
}

/// A host beside those of the edge's own domain.
#[derive(Debug, Clone)]
pub struct CustomHost {
    pub host: String,
    pub app_id: ApplicationId,
    /// Another host of the site that this one redirects to.
    pub redirect_to: Option<String>,
}
row!(CustomHost { host, app_id, redirect_to });

impl CustomHost {
    pub async fn find(db: &Db, host: &str) -> db::Result<Option<Self>> {
        db.opt("SELECT host, app_id, redirect_to FROM site_host WHERE host = $1", params![host]).await
    }

    pub async fn of_app(mut from: impl Read, app: ApplicationId) -> db::Result<Vec<Self>> {
        let sql =
            "SELECT host, app_id, redirect_to FROM site_host WHERE app_id = $1 ORDER BY created_at, host LIMIT 1000";
        from.all(sql, params![app]).await
    }
}

/// Lets a host serve the site of an app, or redirect to another host of it. The host is lower case and in ASCII; whoever calls
/// this has proof that it belongs to the app. A host that another app had moves. Every node serves it within a second.
pub async fn attach_host(
    tx: &mut Tx,
    janua: &Janua,
    host: &str,
    app: ApplicationId,
    redirect_to: Option<&str>,
) -> db::Result<()> {
    let before: Option<(ApplicationId,)> =
        tx.opt("SELECT app_id FROM site_host WHERE host = $1", params![host]).await?;
    tx.exec(
        "INSERT INTO site_host (host, app_id, redirect_to, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (host) DO UPDATE SET app_id = $2, redirect_to = $3",
        params![host, app, redirect_to, janua.clock.now()],
    )
    .await?;
    if let Some((before,)) = before {
        changed(tx, before).await?;
    }
    changed(tx, app).await
}

/// Ends a host. `false` when the app does not have it.
pub async fn detach_host(tx: &mut Tx, host: &str, app: ApplicationId) -> db::Result<bool> {
    let sql = "DELETE FROM site_host WHERE host = $1 AND app_id = $2";
    let gone = tx.exec(sql, params![host, app]).await?;
    changed(tx, app).await?;
    Ok(gone == 1)
}
