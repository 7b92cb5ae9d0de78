//! Billing: organizations and apps subscribe to plans.
mod access;
mod admin;
mod api;
pub mod apply;
pub mod checkout;
pub mod events;
mod handle;
pub mod jobs;
mod mails;
pub mod model;
pub mod prices;
pub mod urls;
mod view;
pub mod webhook;

use std::pin::Pin;

use db::Tx;
use kernel::{Janua, feature::Feature, http::Routes, installation, transact};
use tenancy::{apps::ApplicationId, gone::Gone, orgs::OrgId};

use self::{jobs::CancelRemote, model::Subject};
use crate::{
    Settings,
    payments::{Kind, Payments},
    plans::Plans,
};

pub use self::access::app as payer_of_app;

const GONE: &[Gone] = &[Gone::Org(org_gone), Gone::App(app_gone)];

pub fn feature() -> Feature {
    Feature::new(Routes::new("billing").and(api::routes()).and(webhook::routes()).and(admin::routes()))
        .own(webhook::LastRejection::default())
        .jobs(jobs::jobs())
        .declares(events::EVENTS)
        .declares(mails::MAILS)
        .declares(webhook::CHORES)
        .declares(GONE)
        .start(|janua| Box::pin(async move { start(&janua).await }))
}

type Doing<'a> = Pin<Box<dyn Future<Output = db::Result<()>> + Send + 'a>>;

fn org_gone<'a>(tx: &'a mut Tx, janua: &'a Janua, id: OrgId) -> Doing<'a> {
    Box::pin(async move {
        for subject in Subject::all_of(&mut *tx, id).await? {
            end(tx, janua, subject).await?;
        }
        Ok(())
    })
}

fn app_gone<'a>(tx: &'a mut Tx, janua: &'a Janua, id: ApplicationId) -> Doing<'a> {
    Box::pin(async move {
        match Subject::of_app(&mut *tx, id).await? {
            Some(subject) => end(tx, janua, subject).await,
            None => Ok(()),
        }
    })
}

/// A subject whose organization or app is deleted: its subscription is canceled by a job of the same commit.
async fn end(tx: &mut Tx, janua: &Janua, mut subject: Subject) -> db::Result<()> {
    let now = janua.clock.now();
    if let Some(subscription) =
        subject.subscription.clone().filter(|_| subject.is_subscribed() || subject.is_incomplete())
    {
        let job = CancelRemote { subscription, subject: subject.id };
        kernel::jobs::enqueue(tx, janua, now, &job).await?;
    }
    subject.deleted_at = Some(now);
    subject.email = None;
    subject.save(tx, now).await
}

/// Checks the processor before the first request.
pub(crate) async fn start(janua: &Janua) -> Result<(), String> {
    if let Some(wrong) = janua.own::<Payments>().wrong() {
        return Err(wrong.to_owned());
    }
    let Some(driver) = Payments::of(janua) else { return Ok(()) };
    let failed = |error: db::Error| error.to_string();
    if driver.kind == Kind::Sandbox {
        let has_live = installation::read(&janua.db, apply::HAS_LIVE).await.map_err(failed)?.is_some();
        if has_live {
            return Err(
                "payments: this database holds subscriptions for real money, and the sandbox would give plans away. \
                        Set payments = stripe or off"
                    .into(),
            );
        }
        return Ok(());
    }
    end_of_sandbox(janua).await.map_err(|fault| fault.to_string())?;
    for plan in Plans::of(janua).plans.values() {
        for price in &plan.prices {
            let Some(id) = &price.processor_id else { continue };
            match prices::difference(janua, driver, id, price).await {
                Ok(None) => {}
                Ok(Some(wrong)) => return Err(format!("plans_file: {wrong}")),
                Err(why) => tracing::warn!(%why, "prices cannot be compared with the processor's yet"),
            }
        }
    }
    if janua.config.of::<Settings>().billing_webhook_secrets.is_empty() {
        tracing::warn!("billing_webhook_secrets is empty: changes of subscriptions arrive once an hour");
    }
    Ok(())
}

/// Plans that were bought with test cards end when real payments begin.
async fn end_of_sandbox(janua: &Janua) -> kernel::fault::Result<()> {
    let mut after = String::new();
    loop {
        let subjects = Subject::living(&janua.db, &after, 200).await?;
        let Some(last) = subjects.last() else { return Ok(()) };
        after = last.id.to_string();
        for subject in subjects.into_iter().filter(|subject| subject.processor == Kind::Sandbox.name()) {
            transact!(janua, async |tx| {
                let Some(before) = apply::hold(tx, subject.id).await? else { return Ok(()) };
                let mut subject = before.clone();
                subject.status = "canceled".into();
                apply::settle(tx, janua, &before, &mut subject, janua.clock.now(), "sandbox_ended").await
            })?;
        }
    }
}
