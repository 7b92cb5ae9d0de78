//! Asking somebody in, by their address.
use std::time::Duration;

use axum::{extract::State, response::NoContent};
use db::Tx;
use kernel::{
    Janua,
    fault::{Code, FORBIDDEN, Fault, NOT_FOUND, RATE_LIMITED, Result},
    http::{Json, Key, Listed, Page, Path, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{Account, AccountId},
    email::Email,
    enter::{Admin, InOrg},
    messages::budget,
    orgs::{Org, Role, invites::Invite, members::OrgMember},
};

use crate::events::{InviteCancelled, InviteResent, MemberInvited};

pub fn routes() -> Routes {
    Routes::new("org")
        .post("/org/{id}/members", invite_member, "invite a member by email")
        .fails(&[ALREADY_MEMBER, RATE_LIMITED])
        .get("/org/{id}/invites", list_invites, "pending invitations")
        .post("/org/{id}/invites/{email}/resend", resend_invite, "resend an invite email")
        .fails(&[RATE_LIMITED])
        .delete("/org/{id}/invites/{email}", cancel_invite, "cancel a pending invite")
}

const ALREADY_MEMBER: Code = Code::new(409, "already_member", "This user is already a member.");

/// The same address is written to no more often than this.
const PAUSE: Duration = Duration::from_mins(1);
/// How many mails an hour go out for one organization, by one person and to one address, so that inviting is no way to
/// send mails to strangers. What was cancelled counts.
const BY_ORG: u32 = 100;
const BY_PERSON: u32 = 100;
const TO_ONE: u32 = 5;

fn may_write_to(janua: &Janua, pending: Option<&Invite>) -> Result<()> {
    match pending {
        Some(pending) if janua.clock.now().since(pending.sent_at) < PAUSE => {
            Err(Fault::from(RATE_LIMITED).retry_after(PAUSE))
        }
        _ => Ok(()),
    }
}

async fn spend_budget(tx: &mut Tx, janua: &Janua, org: &Org, inviter: AccountId, to: &Email) -> Result<()> {
    let (org, inviter) = (org.id.to_string(), inviter.to_string());
    let budgets =
        [("invite-org", org.as_str(), BY_ORG), ("invite-by", &inviter, BY_PERSON), ("invite-to", to.key(), TO_ONE)];
    for (kind, whose, most) in budgets {
        if !budget::spend(tx, janua, kind, whose, most).await? {
            return Err(Fault::from(RATE_LIMITED).retry_after(budget::HOUR));
        }
    }
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
struct Ask {
    email: Email,
    role: Role,
}

async fn invite_member(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Json(ask): Json<Ask>,
) -> Result<Json<Invite>> {
    let invite = transact!(janua, async |tx| {
        let own = caller.hold(tx).await?;
        let pending = Invite::find(tx, own.org.id, &ask.email).await?;
        // Neither given nor taken away by somebody who could not be in that role.
        if own.role < pending.as_ref().map_or(ask.role, |pending| pending.role.max(ask.role)) {
            return Err(FORBIDDEN.into());
        }
        may_write_to(&janua, pending.as_ref())?;
        if let Some(account) = Account::by_email(&mut *tx, &ask.email).await?
            && OrgMember::find(tx, caller.org().id, account.id).await?.is_some()
        {
            return Err(ALREADY_MEMBER.into());
        }
        let inviter = caller.session.account();
        spend_budget(tx, &janua, &own.org, inviter.id, &ask.email).await?;
        let invite = Invite::send(tx, &janua, &own.org, inviter, &ask.email, ask.role).await?;
        let event = MemberInvited { email: invite.email.clone(), role: invite.role };
        caller.record(tx, &janua, &event).await?;
        Ok(invite)
    })?;
    Ok(Json(invite))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Invites {
    invites: Vec<Invite>,
    next_cursor: Option<String>,
}

async fn list_invites(State(janua): State<Janua>, caller: InOrg<Admin>, page: Page) -> Result<Json<Invites>> {
    let org = caller.org().id;
    let fetch = async |below, most| Invite::page(&janua.db, org, &below, most).await;
    let key = |invite: &Invite| Key { at: invite.created_at, id: invite.email_key.clone() };
    let Listed { rows, next_cursor } = page.list(&janua, "invites", org, fetch, key).await?;
    Ok(Json(Invites { invites: rows, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct Whose {
    email: Email,
}

/// A new link for the same address and role; the old one no longer works.
async fn resend_invite(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Path(Whose { email }): Path<Whose>,
) -> Result<Json<Invite>> {
    let invite = transact!(janua, async |tx| {
        let own = caller.hold(tx).await?;
        let pending = Invite::find(tx, own.org.id, &email).await?.ok_or(NOT_FOUND)?;
        if pending.role > own.role {
            return Err(FORBIDDEN.into());
        }
        may_write_to(&janua, Some(&pending))?;
        let inviter = caller.session.account();
        spend_budget(tx, &janua, &own.org, inviter.id, &email).await?;
        let invite = Invite::send(tx, &janua, &own.org, inviter, &email, pending.role).await?;
        let event = InviteResent { email: invite.email.clone() };
        caller.record(tx, &janua, &event).await?;
        Ok(invite)
    })?;
    Ok(Json(invite))
}

async fn cancel_invite(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Path(Whose { email }): Path<Whose>,
) -> Result<NoContent> {
    let org = caller.org().id;
    transact!(janua, async |tx| {
        let own = caller.hold(tx).await?;
        let pending = Invite::find(tx, org, &email).await?.ok_or(NOT_FOUND)?;
        if pending.role > own.role {
            return Err(FORBIDDEN.into());
        }
        Invite::cancel(tx, org, &email).await?;
        let event = InviteCancelled { email: email.as_str().to_owned() };
        Ok(caller.record(tx, &janua, &event).await?)
    })?;
    Ok(NoContent)
}
