//! For platform owners: the plans of the installation, and the plan of each organization.
use axum::extract::State;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Routes, Scope},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::PlatformOwner,
    events::{self, About, By},
    orgs::{Org, OrgId},
};

use super::Plans;

pub const UNKNOWN_PLAN: Code = Code::new(400, "unknown_plan", "There is no plan of this name.");

tenancy::events! {
    /// An organization was put on another plan.
    PlanChanged { from: String, to: String, reason: &'static str } = "BILLING_PLAN_CHANGED";
}

pub fn routes() -> Routes {
    Routes::new("platform")
        .get("/admin/plans", list_plans, "the plans of the installation")
        .get("/admin/plans/orgs", list_orgs, "all organizations with their plans, newest first")
        .patch("/admin/orgs/{id}", change_org, "put an organization on another plan")
        .fails(&[UNKNOWN_PLAN, NOT_FOUND])
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PlanView {
    plan: String,
    name: String,
    rank: i64,
    hidden: bool,
    limits: Vec<LimitView>,
    usage_events_per_second: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
struct LimitView {
    meter: String,
    included: i64,
    hard: bool,
    cap: Option<i64>,
    overage: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct PlanList {
    plans: Vec<PlanView>,
}

async fn list_plans(State(janua): State<Janua>, _owner: PlatformOwner) -> Json<PlanList> {
    let mut plans: Vec<_> = Plans::of(&janua).plans.iter().collect();
    plans.sort_by_key(|(_, plan)| plan.rank);
    let plans = plans.into_iter().map(|(name, plan)| PlanView {
        plan: name.clone(),
        name: plan.title.clone(),
        rank: plan.rank,
        hidden: plan.hidden,
        limits: plan
            .limits
            .iter()
            .map(|(meter, limit)| LimitView {
                meter: meter.clone(),
                included: limit.included,
                hard: limit.hard,
                cap: limit.cap,
                overage: limit.overage.clone(),
            })
            .collect(),
        usage_events_per_second: plan.events_per_second,
    });
    Json(PlanList { plans: plans.collect() })
}

/// An organization, as platform owners see it.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OrgOnPlan {
    id: OrgId,
    name: String,
    slug: String,
    plan: String,
    created_at: Timestamp,
}

impl From<Org> for OrgOnPlan {
    fn from(org: Org) -> Self {
        Self { id: org.id, name: org.name, slug: org.slug, plan: org.tier, created_at: org.created_at }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OrgsOnPlans {
    orgs: Vec<OrgOnPlan>,
    next_cursor: Option<String>,
}

async fn list_orgs(State(janua): State<Janua>, _owner: PlatformOwner, page: Page) -> Result<Json<OrgsOnPlans>> {
    let fetch = async |below, most| Org::page(&janua.db, &below, most).await;
    let key = |org: &Org| Key { at: org.created_at, id: org.id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "plans-orgs", Scope::platform(), fetch, key).await?;
    Ok(Json(OrgsOnPlans { orgs: rows.into_iter().map(Into::into).collect(), next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct OrgPath {
    id: OrgId,
}

#[derive(Deserialize, JsonSchema)]
struct PlanChange {
    #[schemars(length(min = 1, max = 64))]
    plan: String,
}

async fn change_org(
    State(janua): State<Janua>,
    PlatformOwner(session): PlatformOwner,
    Path(OrgPath { id }): Path<OrgPath>,
    Json(change): Json<PlanChange>,
) -> Result<Json<OrgOnPlan>> {
    set_plan(&janua, &session.by(), id, &change.plan).await.map(|org| Json(org.into()))
}

/// Puts an organization on another plan. What is over the limits of the new one stays, and no more comes in.
pub async fn set_plan(janua: &Janua, by: &By, id: OrgId, plan: &str) -> Result<Org> {
    if Plans::of(janua).find(plan).is_none() {
        return Err(UNKNOWN_PLAN.at("plan", "unknown", "is not the name of a plan"));
    }
    transact!(janua, async |tx| {
        if !Org::hold(tx, id).await? {
            return Err(NOT_FOUND.into());
        }
        let mut org = Org::find(&mut *tx, id).await?.ok_or(NOT_FOUND)?;
        if org.tier != plan {
            let event = PlanChanged { from: org.tier.clone(), to: plan.to_owned(), reason: "operator" };
            Org::set_plan(tx, id, plan, janua.clock.now()).await?;
            events::record(tx, janua, by, About::in_org(id), &event).await?;
            plan.clone_into(&mut org.tier);
        }
        Ok(org)
    })
}
