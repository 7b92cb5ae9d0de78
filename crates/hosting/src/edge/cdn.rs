//! `/apps/{appId}/cdn`: how the site of an app is delivered, and its settings.
use std::{net::IpAddr, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, NoContent, Response},
};
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, Fault, INVALID, NOT_FOUND, Result},
    http::{Json, MaybeJson, Routes},
    jobs::{self, Job, Jobs, Later},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{Application, ApplicationId},
    enter::{Admin, InApp, Member},
};
use tokio::net::lookup_host;

use super::{
    EdgeUrl, Settings,
    cloudfront::{self, CdnError, CloudFront},
    site::{CustomHost, PreviewAccess, Provider, Site, SiteAccess, SiteId, SiteSettings, SiteStatus, SpaFallback},
};
use crate::deployments::{
    DeploymentId,
    events::{DistributionDisabled, DistributionProvisioned, DistributionUpdated},
};

const CDN_NOT_CONFIGURED: Code =
    Code::new(503, "cdn_not_configured", "This installation has no external provider. Use the built-in edge.");

pub fn routes() -> Routes {
    Routes::new("deployments")
        .post("/apps/{appId}/cdn", provision, "set up the delivery of a site, or change its settings")
        .answers::<Distribution>(202, "application/json")
        .answers::<Distribution>(200, "application/json")
        .fails(&[CDN_NOT_CONFIGURED])
        .get("/apps/{appId}/cdn", show_cdn, "show how a site is delivered")
        .delete("/apps/{appId}/cdn", disable, "switch a site off")
}

pub fn jobs() -> Jobs {
    Jobs::new().on::<Provision>().on::<Invalidate>()
}

/// A host of a site.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DomainOfSite {
    domain: String,
    status: &'static str,
    redirect_to: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Distribution {
    id: SiteId,
    app_id: ApplicationId,
    provider: Provider,
    status: SiteStatus,
    /// Where the site is served.
    hostname: String,
    url: String,
    /// What a custom domain's CNAME record names.
    cname_target: String,
    /// What a custom domain's A and AAAA records name.
    addresses: Vec<IpAddr>,
    domains: Vec<DomainOfSite>,
    settings: SiteSettings,
    active_deployment_id: Option<DeploymentId>,
    error: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl Distribution {
    async fn of(janua: &Janua, site: Site, app: &Application) -> Result<Self> {
        let edge = EdgeUrl::of(&janua.config);
        let hosts = CustomHost::of_app(&janua.db, app.id).await?;
        let domains = hosts.into_iter().map(|host| DomainOfSite {
            domain: host.host,
            status: "active",
            redirect_to: host.redirect_to,
        });
        let (hostname, url) = match &site.external_host {
            Some(host) => (host.clone(), format!("https://{host}")),
            None => (edge.host(&app.slug), edge.url(&app.slug)),
        };
        Ok(Self {
            id: site.id,
            app_id: site.app_id,
            provider: site.provider,
            status: site.status,
            hostname,
            url,
            cname_target: edge.host(&site.cname),
            addresses: addresses(janua, &edge).await,
            domains: domains.collect(),
            settings: site.settings,
            active_deployment_id: site.active_id,
            error: site.error,
            created_at: site.created_at,
            updated_at: site.updated_at,
        })
    }
}

/// As the settings say, or as the name servers do.
async fn addresses(janua: &Janua, edge: &EdgeUrl) -> Vec<IpAddr> {
    let settings = janua.config.of::<Settings>();
    if !settings.edge_addresses.is_empty() {
        return settings.edge_addresses.clone();
    }
    if edge.domain == "localhost" {
        return vec![];
    }
    let found = tokio::time::timeout(Duration::from_secs(1), lookup_host((edge.domain.as_str(), 80))).await;
    let mut found: Vec<IpAddr> =
        found.ok().and_then(std::result::Result::ok).into_iter().flatten().map(|at| at.ip()).collect();
    found.sort();
    found.dedup();
    found
}

/// Settings that are to change; the others stay.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct SettingsChange {
    spa_fallback: Option<SpaFallback>,
    preview_access: Option<PreviewAccess>,
    access: Option<SiteAccess>,
    #[schemars(range(min = 0, max = 168))]
    asset_grace_hours: Option<u32>,
    locked: Option<bool>,
    #[schemars(length(max = 500))]
    locked_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct NewDistribution {
    provider: Option<Provider>,
    settings: SettingsChange,
}

impl SettingsChange {
    /// Applies the change and answers the names of what is different.
    fn apply(&self, settings: &mut SiteSettings) -> Vec<String> {
        let before = settings.clone();
        let now = settings;
        now.spa_fallback = self.spa_fallback.unwrap_or(now.spa_fallback);
        now.preview_access = self.preview_access.unwrap_or(now.preview_access);
        now.access = self.access.unwrap_or(now.access);
        now.asset_grace_hours = self.asset_grace_hours.unwrap_or(now.asset_grace_hours);
        now.locked = self.locked.unwrap_or(now.locked);
        if let Some(reason) = &self.locked_reason {
            now.locked_reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
        }
        if !now.locked {
            now.locked_reason = None;
        }
        let names = [
            ("spaFallback", before.spa_fallback != now.spa_fallback),
            ("previewAccess", before.preview_access != now.preview_access),
            ("access", before.access != now.access),
            ("assetGraceHours", before.asset_grace_hours != now.asset_grace_hours),
            ("locked", before.locked != now.locked),
            ("lockedReason", before.locked_reason != now.locked_reason),
        ];
        names.into_iter().filter(|(_, is_new)| *is_new).map(|(name, _)| name.to_owned()).collect()
    }
}

async fn provision(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    MaybeJson(wanted): MaybeJson<NewDistribution>,
) -> Result<Response> {
    let wanted = wanted.unwrap_or_default();
    if wanted.provider == Some(Provider::External) && CloudFront::from_config(&janua.config).is_none() {
        return Err(CDN_NOT_CONFIGURED.into());
    }
    if wanted.settings.asset_grace_hours.is_some_and(|hours| hours > 168) {
        return Err(INVALID.at("settings.assetGraceHours", "too_large", "must be at most 168"));
    }
    let (change, provider) = (wanted.settings, wanted.provider);
    let (site, app) = transact!(janua, async |tx| {
        let app = caller.hold(tx).await?;
        let (mut site, is_new) = Site::provision(tx, &janua, &app).await?;
        let now = janua.clock.now();
        let mut fields = change.apply(&mut site.settings);
        if site.status == SiteStatus::Disabled {
            site.status = SiteStatus::Active;
            fields.push("status".into());
        }
        match provider {
            Some(Provider::External) if site.provider != Provider::External || site.status == SiteStatus::Failed => {
                (site.provider, site.status, site.error) = (Provider::External, SiteStatus::Provisioning, None);
                fields.push("provider".into());
                jobs::enqueue(tx, &janua, now, &Provision { app: app.id }).await?;
            }
            Some(Provider::Edge) if site.provider != Provider::Edge => {
                (site.provider, site.status, site.error) = (Provider::Edge, SiteStatus::Active, None);
                (site.external_id, site.external_host) = (None, None);
                fields.push("provider".into());
            }
            _ => {}
        }
        if !fields.is_empty() {
            site.updated_at = now;
            site.save(tx).await?;
        }
        if is_new {
            let provider = site.provider.name().into();
            caller.record(tx, &janua, &DistributionProvisioned { distribution_id: site.id, provider }).await?;
        } else if !fields.is_empty() {
            caller.record(tx, &janua, &DistributionUpdated { distribution_id: site.id, fields }).await?;
        }
        Ok((site, app))
    })?;
    let status = if site.status == SiteStatus::Provisioning { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(Distribution::of(&janua, site, &app).await?)).into_response())
}

async fn show_cdn(State(janua): State<Janua>, caller: InApp<Member>) -> Result<Json<Distribution>> {
    let site = Site::find(&janua.db, caller.application.id).await?.ok_or(NOT_FOUND)?;
    Distribution::of(&janua, site, &caller.application).await.map(Json)
}

/// The site answers 404 until it is set up again. Deployments stay.
async fn disable(State(janua): State<Janua>, caller: InApp<Admin>) -> Result<NoContent> {
    transact!(janua, async |tx| {
        let app = caller.hold(tx).await?;
        let mut site = Site::find(&mut *tx, app.id).await?.ok_or(NOT_FOUND)?;
        if site.status == SiteStatus::Disabled {
            return Ok(());
        }
        (site.status, site.updated_at) = (SiteStatus::Disabled, janua.clock.now());
        site.save(tx).await?;
        Ok(caller.record(tx, &janua, &DistributionDisabled { distribution_id: site.id }).await?)
    })?;
    Ok(NoContent)
}

/// Tells the external distribution of a new production, if there is one.
pub async fn note_activation(tx: &mut Tx, janua: &Janua, app: ApplicationId, now: Timestamp) -> db::Result<()> {
    let Some(site) = Site::find(&mut *tx, app).await? else { return Ok(()) };
    if site.provider != Provider::External || site.external_id.is_none() {
        return Ok(());
    }
    jobs::enqueue(tx, janua, now, &Invalidate { app, number: site.active_number }).await
}

fn later(error: CdnError) -> Later {
    match error {
        CdnError::Away(_) => Later::retry(error),
        CdnError::Refused(_) => Later::give_up(error),
    }
}

/// Creates the external distribution and looks until it is there.
#[derive(Serialize, Deserialize)]
pub struct Provision {
    pub app: ApplicationId,
}

/// How often it is looked at while the provider rolls it out.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(20);

impl Job for Provision {
    const KIND: &'static str = "provision_distribution";
    const TRIES: u32 = 60;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(site) = Site::find(&janua.db, self.app).await? else { return Ok(()) };
        if site.provider != Provider::External || site.status != SiteStatus::Provisioning {
            return Ok(());
        }
        let Some(app) = Application::find(&janua.db, self.app).await? else { return Ok(()) };
        let Some(provider) = CloudFront::from_config(&janua.config) else {
            return Err(Later::give_up("no external provider is configured"));
        };
        let (edge, now) = (EdgeUrl::of(&janua.config), janua.clock.now());
        let origin =
            janua.config.of::<cloudfront::Settings>().cdn_origin.clone().unwrap_or_else(|| edge.host(&app.slug));
        let port = edge.port.unwrap_or(if edge.is_secure() { 443 } else { 80 });
        let found = match &site.external_id {
            Some(id) => provider.look(id, now).await,
            None => provider.create(&site.id.to_string(), &origin, port, edge.is_secure(), now).await,
        };
        let (status, error) = match &found {
            Ok(external) if external.is_deployed => (SiteStatus::Active, None),
            Ok(_) | Err(CdnError::Away(_)) => (SiteStatus::Provisioning, None),
            Err(CdnError::Refused(why)) => (SiteStatus::Failed, Some(why.clone())),
        };
        let saved: Result<(), Fault> = transact!(janua, async |tx| {
            if Application::hold(tx, self.app).await?.is_none() {
                return Ok(());
            }
            let Some(mut site) = Site::find(&mut *tx, self.app).await? else { return Ok(()) };
            if site.provider != Provider::External || site.status != SiteStatus::Provisioning {
                return Ok(());
            }
            if let Ok(external) = &found {
                site.external_id = Some(external.id.clone());
                site.external_host = Some(external.host.clone());
            }
            (site.status, site.error, site.updated_at) = (status, error.clone(), janua.clock.now());
            Ok(site.save(tx).await?)
        });
        saved?;
        match found {
            Ok(external) if external.is_deployed => Ok(()),
            Ok(_) => Err(Later::retry_after("the distribution is being rolled out", LOOKED_AT_EVERY)),
            Err(CdnError::Refused(_)) => Ok(()),
            Err(away) => Err(later(away)),
        }
    }
}

/// Lets the external distribution forget the production before.
#[derive(Serialize, Deserialize)]
pub struct Invalidate {
    pub app: ApplicationId,
    pub number: i64,
}

impl Job for Invalidate {
    const KIND: &'static str = "invalidate_distribution";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(site) = Site::find(&janua.db, self.app).await? else { return Ok(()) };
        let (Some(id), Some(provider)) = (&site.external_id, CloudFront::from_config(&janua.config)) else {
            return Ok(());
        };
        let reference = format!("{}-{}", site.id, self.number);
        provider.invalidate(id, &reference, janua.clock.now()).await.map_err(later)
    }
}
