//! The organizations one is in, and which of them one acts for.
use axum::{extract::State, response::Response};
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{
    enter::{InOrg, Member, Session},
    orgs::{self, Membership, OrgView},
    sessions::sign_in::{self, SignedIn},
};

pub fn routes() -> Routes {
    Routes::new("account")
        .get("/user/orgs", list_orgs, "orgs the user belongs to")
        .post("/user/orgs/{id}/switch", switch_org, "switch the active org in the session")
        .answers::<SignedIn>(200, "application/json")
}

#[derive(Serialize, JsonSchema)]
struct Orgs {
    orgs: Vec<OrgView>,
}

async fn list_orgs(State(janua): State<Janua>, session: Session) -> Result<Json<Orgs>> {
    let found = Membership::all_of(&janua.db, session.account().id).await?;
    Ok(Json(Orgs { orgs: found.iter().map(OrgView::of).collect() }))
}

async fn switch_org(State(janua): State<Janua>, caller: InOrg<Member>) -> Result<Response> {
    let (session, org) = (&caller.session, caller.org().id);
    transact!(janua, async |tx| Ok(orgs::switch(tx, session.id(), session.account().id, org).await?))?;
    sign_in::renew(&janua, session, &caller.membership)
}
