//! Certificates of domains and of the service itself: ordered from a certificate authority by ACME, kept sealed, renewed by
//! themselves, and given to handshakes by name.
//!
//! An order is made only for a name that is proven, switched on and leads here. It belongs to the installation and not to a
//! node: any node answers the authority, and another one goes on when a node dies.
mod acme;
mod alarm;
mod challenge;
mod events;
mod leaf;
mod listener;
mod model;
mod order;
mod own;
mod renew;
mod tls;
mod zone;

use std::sync::Arc;

use db::Tx;
use kernel::{Janua, clock::Timestamp, fault::Result, feature::Feature, http::Routes};
use schemars::JsonSchema;
use serde::Serialize;

use self::model::Certificate;
pub use self::{
    challenge::{PATH as CHALLENGE_PATH, answer as challenge_answer},
    listener::serve as serve_edge,
    own::{handshake, is_of_edge, is_own_name, redirect, wildcard},
    tls::{Keyring, Secured},
};
use crate::{domains::Domain, settings::Settings};

pub fn feature() -> Feature {
    Feature::new(Routes::new("domains").and(challenge::routes()))
        .jobs(renew::jobs())
        .declares(events::EVENTS)
        .declares(renew::CHORES)
        .declares(&[alarm::CERTIFICATES])
        .own(Arc::new(Keyring::default()))
        .start(|janua| {
            Box::pin(async move {
                let keyring = janua.own::<Arc<Keyring>>().clone();
                janua.db.on_notice(move |notice| keyring.hear(notice));
                own::start(&janua).await
            })
        })
        .release(|janua| {
            Box::pin(async move { model::release_all(&janua.db).await.map_err(|error| error.to_string()) })
        })
        .task("certificates.own", |janua| Box::pin(own::watch(janua)))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateView {
    pub status: CertificateStatus,
    pub issuer: Option<String>,
    pub not_before: Option<Timestamp>,
    pub not_after: Option<Timestamp>,
    /// When it is renewed.
    pub renew_at: Option<Timestamp>,
    /// The last error of the certificate authority, if the order failed.
    pub error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateStatus {
    /// None was ordered yet.
    None,
    Ordering,
    Valid,
    Renewing,
    /// The last order failed; it is tried again.
    Failing,
    /// A proxy in front of the server has the certificate.
    External,
}

/// The certificate of a domain, as it is shown; none for a name that is not served.
pub async fn view(janua: &Janua, domain: &Domain) -> Result<Option<CertificateView>> {
    if !domain.is_listed {
        return Ok(None);
    }
    if !janua.config.of::<Settings>().orders_certificates() {
        let nothing = (None, None, None);
        return Ok(Some(CertificateView {
            status: CertificateStatus::External,
            issuer: None,
            not_before: nothing.0,
            not_after: nothing.1,
            renew_at: nothing.2,
            error: None,
        }));
    }
    let found = Certificate::find(&janua.db, &domain.domain).await?;
    let found = found.filter(|found| found.app_id == Some(domain.app_id));
    Ok(Some(found.map_or_else(CertificateView::none, |found| CertificateView::of(found, janua.clock.now()))))
}

impl CertificateView {
    fn none() -> Self {
        let status = CertificateStatus::None;
        Self { status, issuer: None, not_before: None, not_after: None, renew_at: None, error: None }
    }

    fn of(found: Certificate, now: Timestamp) -> Self {
        let status = match (found.is_live(now), found.next_try_at.is_some(), found.error.is_some()) {
            (_, true, true) => CertificateStatus::Failing,
            (true, true, false) => CertificateStatus::Renewing,
            (false, true, false) => CertificateStatus::Ordering,
            (true, false, _) => CertificateStatus::Valid,
            (false, false, _) => CertificateStatus::None,
        };
        Self {
            status,
            issuer: found.issuer,
            not_before: found.not_before,
            not_after: found.not_after,
            renew_at: found.renew_at,
            error: found.error,
        }
    }
}

/// Whether a name has a certificate that is valid now.
pub async fn is_live(tx: &mut Tx, name: &str, now: Timestamp) -> db::Result<bool> {
    Ok(Certificate::find(&mut *tx, name).await?.is_some_and(|found| found.is_live(now)))
}

/// Orders a certificate for a domain, unless an order is under way or waits for its next try.
pub async fn order_for(tx: &mut Tx, janua: &Janua, domain: &Domain) -> db::Result<()> {
    if !janua.config.of::<Settings>().orders_certificates() {
        return Ok(());
    }
    let now = janua.clock.now();
    Certificate::want(tx, &domain.domain, Some((domain.app_id, domain.org_id)), now).await?;
    order::enqueue(tx, janua, &domain.domain).await
}

/// Somebody asks for a check: what waits for its next try is tried now, within the budgets.
pub async fn try_again(tx: &mut Tx, janua: &Janua, domain: &Domain) -> db::Result<()> {
    if !janua.config.of::<Settings>().orders_certificates() || !domain.is_served() {
        return Ok(());
    }
    Certificate::hurry(tx, &domain.domain, janua.clock.now()).await?;
    order::enqueue(tx, janua, &domain.domain).await
}

/// Destroys the certificate and key of an app's domain, and drops its order. Another app's certificate of the name stays.
pub async fn destroy(tx: &mut Tx, domain: &Domain) -> db::Result<()> {
    Certificate::destroy(tx, &domain.domain, domain.app_id).await
}

#[cfg(test)]
mod tests;
