//! Making an organization, looking at it, changing its name and look, and giving it up.
use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Page, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::slugs::{self, SLUG_TAKEN},
    enter::{
        Admin, InOrg, Member, Owner, Session,
        builders::{self, BUILDERS_ONLY},
    },
    events::{About, happenings::OrgCreated},
    orgs::{self, Membership, Org, OrgId, OrgView, Role, members::OrgMember},
    quotas::QUOTA_EXCEEDED,
};

use crate::{events::OrgUpdated, members};

pub fn routes() -> Routes {
    Routes::new("org")
        .post("/org", create_org, "create an organization")
        .fails(&[SLUG_TAKEN, BUILDERS_ONLY, QUOTA_EXCEEDED])
        .get("/org/{id}", get_org, "organization details and members")
        .patch("/org/{id}", update_org, "update name, slug, branding and automatic joining")
        .fails(&[SLUG_TAKEN])
        .delete("/org/{id}", delete_org, "delete the organization")
}

#[derive(Deserialize, JsonSchema)]
struct NewOrg {
    #[schemars(length(max = 200), regex(pattern = "\\S"))]
    name: String,
    /// Letters, digits and single hyphens; no reserved word. Default: derived from the name.
    #[schemars(length(max = 48), regex(pattern = slugs::PATTERN))]
    slug: Option<String>,
}

async fn create_org(State(janua): State<Janua>, session: Session, Json(new): Json<NewOrg>) -> Result<Json<OrgView>> {
    builders::refuse_others(&janua, &session).await?;
    let (now, account) = (janua.clock.now(), session.account().id);
    new.slug.as_deref().map(slugs::check).transpose()?;
    let mut org = Org::new(OrgId::new(&janua.entropy, now), new.name.trim(), "", now);
    transact!(janua, async |tx| {
        org.slug = new.slug.clone().unwrap_or_else(|| slugs::made_from(&janua, &new.name));
        if !org.insert(tx).await? {
            if new.slug.is_some() {
                return Err(SLUG_TAKEN.into());
            }
            // A name may be had by many; what makes the slug unique is chance.
            org.slug = slugs::slug_near(&janua, &org.slug);
            if !org.insert(tx).await? {
                return Err(SLUG_TAKEN.into());
            }
        }
        OrgMember::add(tx, &janua, org.id, account, Role::Owner).await?;
        session.record_about(tx, &janua, About::in_org(org.id), &OrgCreated).await?;
        // Whoever acts for nobody acts for the first organization they have.
        if session.org().is_none() {
            orgs::switch(tx, session.id(), account, org.id).await?;
        }
        Ok(())
    })?;
    Ok(Json(OrgView::of(&Membership { org, role: Role::Owner })))
}

/// The organization and the newest of its members; the rest is in the list of members.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OrgDetails {
    #[serde(flatten)]
    org: OrgView,
    members: Vec<OrgMember>,
    next_cursor: Option<String>,
}

async fn get_org(State(janua): State<Janua>, caller: InOrg<Member>, page: Page) -> Result<Json<OrgDetails>> {
    let members::Members { members, next_cursor } = members::page(&janua, caller.org().id, &page).await?;
    Ok(Json(OrgDetails { org: OrgView::of(&caller.membership), members, next_cursor }))
}

/// Omitted fields stay unchanged.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OrgChange {
    #[schemars(length(max = 200), regex(pattern = "\\S"))]
    name: Option<String>,
    #[schemars(regex(pattern = "^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?$"))]
    slug: Option<String>,
    branding: Option<Branding>,
    /// Whether users with a verified email at one of its verified domains become members when they sign in.
    auto_join: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Branding {
    /// As in `#1d4ed8`; `null` for none.
    #[schemars(regex(pattern = "^#[0-9a-fA-F]{6}$"))]
    primary_color: Option<String>,
}

async fn update_org(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Json(change): Json<OrgChange>,
) -> Result<Json<OrgView>> {
    let org = transact!(janua, async |tx| {
        let mut org = caller.hold(tx).await?.org;
        let mut fields = vec![];
        if let Some(name) = &change.name {
            org.name = name.trim().to_owned();
            fields.push("name");
        }
        if let Some(slug) = &change.slug {
            // One from before the rules may stay until it is changed.
            if *slug != org.slug {
                slugs::check(slug)?;
            }
            org.slug.clone_from(slug);
            fields.push("slug");
        }
        if let Some(branding) = &change.branding {
            org.primary_color.clone_from(&branding.primary_color);
            fields.push("branding");
        }
        if let Some(auto_join) = change.auto_join {
            org.auto_join = auto_join;
            fields.push("autoJoin");
        }
        org.updated_at = janua.clock.now();
        if !org.save(tx).await? {
            return Err(SLUG_TAKEN.into());
        }
        let event = OrgUpdated { fields };
        caller.record(tx, &janua, &event).await?;
        Ok(org)
    })?;
    Ok(Json(OrgView::of(&Membership { org, role: caller.role() })))
}

async fn delete_org(State(janua): State<Janua>, caller: InOrg<Owner>) -> Result<NoContent> {
    let (id, by) = (caller.org().id, caller.session.by());
    transact!(janua, async |tx| caller.hold(tx).await)?;
    orgs::empty(&janua, id).await?;
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        Ok(orgs::end(tx, &janua, &by, id).await?)
    })?;
    Ok(NoContent)
}
