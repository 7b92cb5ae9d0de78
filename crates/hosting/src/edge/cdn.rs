//! `/apps/{appId}/cdn`: how the site of an app is delivered, and its settings.
use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

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
    gone::Gone,
};
use tokio::net::lookup_host;

use super::{
    EdgeUrl, Settings,
    cloudfront::{self, CdnError, CloudFront, Origin},
    settings::tls_port,
    site::{CustomHost, PreviewAccess, Provider, Site, SiteAccess, SiteId, SiteSettings, SiteStatus, SpaFallback},
};
use crate::{
    certificates::Keyring,
    deployments::{
        DeploymentId,
        events::{DistributionDisabled, DistributionProvisioned, DistributionUpdated},
    },
    domains::{self, Domain},
};

const CDN_NOT_CONFIGURED: Code =
    Code::new(503, "cdn_not_configured", "This installation has no external provider. Use the built-in edge.");

pub fn routes() -> Routes {
    Routes::new("deployments")
        .post("/apps/{appId}/cdn", provision, "set up the delivery of a site, or change its settings")
        .answers::<Distribution>(202, "application/json")
        .answers::<Distribution>(200, "application/json")
        .fails(&[CDN_NOT_CONFIGURED])
        .get("/apps/{appId}/cdn", show_cdn, "show the delivery settings of a site")
        .delete("/apps/{appId}/cdn", disable, "switch a site off")
}

pub fn jobs() -> Jobs {
    Jobs::new().on::<Provision>().on::<Invalidate>().on::<Retire>()
}

/// The external distribution of an app that is deleted goes, too.
pub const GONE: &[Gone] = &[Gone::App(|tx, janua, app| {
    Box::pin(async move {
        let Some(mut site) = Site::find(&mut *tx, app).await? else { return Ok(()) };
        retire(tx, janua, &mut site).await
    })
})];

/// A host of a site.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DomainOfSite {
    domain: String,
    status: domains::Status,
    redirect_to: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Distribution {
    id: SiteId,
    app_id: ApplicationId,
    provider: Provider,
    status: SiteStatus,
    /// The URL of the site.
    hostname: String,
    url: String,
    /// The target of a custom domain's CNAME record.
    cname_target: String,
    /// The IP addresses for a custom domain's A and AAAA records.
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
        let known: HashMap<String, domains::Status> =
            Domain::of_app(&janua.db, app.id).await?.into_iter().map(|one| (one.domain, one.status)).collect();
        let domains = hosts.into_iter().map(|host| DomainOfSite {
            status: known.get(&host.host).copied().unwrap_or(domains::Status::PendingDns),
            domain: host.host,
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
        let (was, before) = (site.provider, site.status);
        site.provider = provider.unwrap_or(was);
        let is_external = site.provider == Provider::External;
        let is_for_members = site.settings.access == SiteAccess::Members;
        if is_external && is_for_members && (was != site.provider || change.access.is_some()) {
            return Err(INVALID.at(
                "settings.access",
                "needs_edge",
                "an external distribution cannot tell members apart",
            ));
        }
        if site.provider != was {
            fields.push("provider".into());
        }
        let is_again =
            before == SiteStatus::Disabled || (before == SiteStatus::Failed && provider == Some(Provider::External));
        if is_again {
            fields.push("status".into());
        }
        if is_again || was != site.provider {
            // What the site had elsewhere is not used again: it is on its way out, or was never completed.
            retire(tx, &janua, &mut site).await?;
            (site.status, site.error) = (SiteStatus::Active, None);
            if is_external {
                site.status = SiteStatus::Provisioning;
                let reference = format!("{}-{}", site.id, now.0);
                jobs::enqueue(tx, &janua, now, &Provision { app: app.id, reference }).await?;
            }
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
        retire(tx, &janua, &mut site).await?;
        (site.status, site.updated_at) = (SiteStatus::Disabled, janua.clock.now());
        site.save(tx).await?;
        Ok(caller.record(tx, &janua, &DistributionDisabled { distribution_id: site.id }).await?)
    })?;
    Ok(NoContent)
}

/// Lets go of the external distribution of a site, if it has one. A job ends it at the provider. The caller saves the site.
async fn retire(tx: &mut Tx, janua: &Janua, site: &mut Site) -> db::Result<()> {
    site.external_host = None;
    let Some(id) = site.external_id.take() else { return Ok(()) };
    jobs::enqueue(tx, janua, janua.clock.now(), &Retire { id }).await
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
        CdnError::Away(_) | CdnError::Conflict(_) => Later::retry(error),
        CdnError::Refused(_) | CdnError::Unknown(_) => Later::give_up(error),
    }
}

/// What a distribution is made to ask: the edge, by TLS where browsers reach it so.
async fn origin(janua: &Janua, app: &Application) -> Origin {
    let edge = EdgeUrl::of(&janua.config);
    let site = edge.host(&app.slug);
    let host = janua.config.of::<cloudfront::Settings>().cdn_origin.clone().unwrap_or_else(|| site.clone());
    let (port, is_tls) = match tls_port(&janua.config) {
        _ if edge.is_secure() => (edge.port.unwrap_or(443), true),
        Some(port) if janua.own::<Arc<Keyring>>().has(janua, &host).await => (port, true),
        _ => (edge.port.unwrap_or(80), false),
    };
    Origin { host, port, is_tls, site }
}

/// Creates the external distribution and looks until it is there.
#[derive(Serialize, Deserialize)]
pub struct Provision {
    pub app: ApplicationId,
    /// By which the provider knows a request that it got before.
    #[serde(default)]
    pub reference: String,
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
        let now = janua.clock.now();
        let reference = if self.reference.is_empty() { site.id.to_string() } else { self.reference.clone() };
        let found = match &site.external_id {
            Some(id) => provider.look(id, now).await,
            None => provider.create(&reference, &origin(&janua, &app).await, now).await,
        };
        let (status, error) = match &found {
            Ok(external) if external.is_deployed => (SiteStatus::Active, None),
            Ok(_) | Err(CdnError::Away(_) | CdnError::Conflict(_)) => (SiteStatus::Provisioning, None),
            Err(CdnError::Refused(why) | CdnError::Unknown(why)) => (SiteStatus::Failed, Some(why.clone())),
        };
        let saved: Result<(), Fault> = transact!(janua, async |tx| {
            let mut now = match Application::hold(tx, self.app).await? {
                Some(_) => Site::find(&mut *tx, self.app).await?,
                None => None,
            };
            let id = found.as_ref().ok().map(|external| &external.id);
            let is_ours = |now: &mut Site| {
                now.provider == Provider::External
                    && now.status == SiteStatus::Provisioning
                    && (now.external_id == site.external_id || now.external_id.as_ref() == id)
            };
            let Some(mut now) = now.take_if(is_ours) else {
                // The site was switched off, moved or deleted meanwhile, and nothing else names what was made.
                return match id {
                    Some(id) if site.external_id.is_none() => {
                        let id = id.clone();
                        Ok(jobs::enqueue(tx, &janua, janua.clock.now(), &Retire { id }).await?)
                    }
                    _ => Ok(()),
                };
            };
            if let Ok(external) = &found {
                now.external_id = Some(external.id.clone());
                now.external_host = Some(external.host.clone());
            }
            (now.status, now.error, now.updated_at) = (status, error.clone(), janua.clock.now());
            Ok(now.save(tx).await?)
        });
        saved?;
        match found {
            Ok(external) if external.is_deployed => Ok(()),
            Ok(_) => Err(Later::retry_after("the distribution is being rolled out", LOOKED_AT_EVERY)),
            Err(error @ (CdnError::Away(_) | CdnError::Conflict(_))) => Err(later(error)),
            Err(CdnError::Refused(_) | CdnError::Unknown(_)) => Ok(()),
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
        match provider.invalidate(id, &reference, janua.clock.now()).await {
            // It was deleted meanwhile.
            Err(CdnError::Unknown(_)) => Ok(()),
            done => done.map_err(later),
        }
    }
}

/// Ends a distribution that no site has any more, so that it is not paid for: it is switched off, and deleted once that is
/// rolled out.
#[derive(Serialize, Deserialize)]
pub struct Retire {
    pub id: String,
}

impl Job for Retire {
    const KIND: &'static str = "retire_distribution";
    /// The roll-out takes minutes; a provider that is away is asked for days.
    const TRIES: u32 = 200;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(provider) = CloudFront::from_config(&janua.config) else {
            return Err(Later::give_up(format!(
                "no external provider is configured; its distribution {} stays",
                self.id
            )));
        };
        match provider.retire(&self.id, janua.clock.now()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Later::retry_after("the distribution is being switched off", LOOKED_AT_EVERY)),
            Err(error) => Err(later(error)),
        }
    }
}
