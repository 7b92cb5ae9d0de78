//! The people in an organization and what they may do.
use axum::{extract::State, response::NoContent};
use db::Tx;
use kernel::{
    Janua,
    fault::{FORBIDDEN, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::AccountId,
    enter::{Admin, AdminOrSelf, InOrg, Least, Member},
    events::happenings::MemberRemoved,
    orgs::{LAST_OWNER, OrgId, Role, invites::Invite, members::OrgMember},
};

use crate::events::MemberRoleChanged;

pub fn routes() -> Routes {
    Routes::new("org")
        .get("/org/{id}/members", list_members, "list members")
        .patch("/org/{id}/members/{userId}", change_role, "change a member's role")
        .fails(&[LAST_OWNER])
        .delete("/org/{id}/members/{userId}", remove_member, "remove a member, or leave the organization")
        .fails(&[LAST_OWNER])
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Members {
    pub members: Vec<OrgMember>,
    pub next_cursor: Option<String>,
}

pub async fn page(janua: &Janua, org: OrgId, page: &Page) -> Result<Members> {
    let fetch = async |below, most| OrgMember::page(&janua.db, org, &below, most).await;
    let key = |member: &OrgMember| Key { at: member.joined_at, id: member.user_id.to_string() };
    let Listed { rows, next_cursor } = page.list(janua, "members", org, fetch, key).await?;
    Ok(Members { members: rows, next_cursor })
}

async fn list_members(State(janua): State<Janua>, caller: InOrg<Member>, page: Page) -> Result<Json<Members>> {
    Ok(Json(self::page(&janua, caller.org().id, &page).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Whom {
    user_id: AccountId,
}

#[derive(Deserialize, JsonSchema)]
struct NewRole {
    role: Role,
}

/// Somebody to act upon, while nobody else can: the caller's own role is read anew, too, for it may just have changed.
async fn held<R: Least>(tx: &mut Tx, caller: &InOrg<R>, whom: AccountId) -> Result<(Role, OrgMember)> {
    let own = caller.hold(tx).await?;
    let target = OrgMember::find(tx, own.org.id, whom).await?.ok_or(NOT_FOUND)?;
    Ok((own.role, target))
}

async fn change_role(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Path(Whom { user_id }): Path<Whom>,
    Json(NewRole { role }): Json<NewRole>,
) -> Result<Json<OrgMember>> {
    let org = caller.org().id;
    let member = transact!(janua, async |tx| {
        let (own, mut member) = held(tx, &caller, user_id).await?;
        // Only owners make and unmake owners.
        if own < Role::Admin || (own < Role::Owner && Role::Owner == role.max(member.role)) {
            return Err(FORBIDDEN.into());
        }
        if member.role == role {
            return Ok(member);
        }
        if member.role == Role::Owner && OrgMember::owners(tx, org).await? == 1 {
            return Err(LAST_OWNER.into());
        }
        OrgMember::set_role(tx, org, user_id, role).await?;
        Invite::withdraw(tx, org, user_id, Some(role)).await?;
        let event = MemberRoleChanged { from: member.role, to: role };
        caller.record_about(tx, &janua, user_id, &event).await?;
        member.role = role;
        Ok(member)
    })?;
    Ok(Json(member))
}

async fn remove_member(
    State(janua): State<Janua>,
    caller: InOrg<AdminOrSelf>,
    Path(Whom { user_id }): Path<Whom>,
) -> Result<NoContent> {
    let org = caller.org().id;
    transact!(janua, async |tx| {
        let (own, member) = held(tx, &caller, user_id).await?;
        let leaves = user_id == caller.session.account().id;
        if !leaves && (own < Role::Admin || own < member.role) {
            return Err(FORBIDDEN.into());
        }
        if member.role == Role::Owner && OrgMember::owners(tx, org).await? == 1 {
            return Err(LAST_OWNER.into());
        }
        OrgMember::remove(tx, &janua, org, user_id).await?;
        Invite::withdraw(tx, org, user_id, None).await?;
        Ok(caller.record_about(tx, &janua, user_id, &MemberRemoved).await?)
    })?;
    Ok(NoContent)
}
