//! Asking somebody in, by their address.
use std::time::Duration;

use axum::{extract::State, response::NoContent};
use kernel::{
    App,
    fault::{Code, FORBIDDEN, Fault, NOT_FOUND, RATE_LIMITED, Result},
    http::{Json, Key, Page, Path, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::Account,
    email::Email,
    enter::{Admin, InOrg},
    events::{self, About, Event},
    invites::Invite,
    orgs::{Member, Role},
};

pub fn routes() -> Routes {
    Routes::new("org")
        .post("/org/{id}/members", invite_member, "invite a member by email")
        .fails(&[ALREADY_MEMBER, RATE_LIMITED])
        .get("/org/{id}/invites", list_invites, "invites that were not accepted yet")
        .post("/org/{id}/invites/{email}/resend", resend_invite, "resend an invite email")
        .fails(&[RATE_LIMITED])
        .delete("/org/{id}/invites/{email}", cancel_invite, "cancel a pending invite")
}

const ALREADY_MEMBER: Code = Code::new(409, "already_member", "This person is in the organization already.");

/// The same address is written to no more often than this.
const PAUSE: Duration = Duration::from_mins(1);
/// How many people an organization asks in a day, so that it is no way to send mails to strangers.
const A_DAY: i64 = 200;
const DAY: Duration = Duration::from_hours(24);

#[derive(Deserialize, JsonSchema)]
struct Ask {
    email: Email,
    role: Role,
}

async fn invite_member(State(app): State<App>, caller: InOrg<Admin>, Json(ask): Json<Ask>) -> Result<Json<Invite>> {
    if ask.role > caller.role() {
        return Err(FORBIDDEN.into());
    }
    let invite = transact!(app.db, tx, {
        if let Some(account) = Account::by_email_in(tx, &ask.email).await?
            && Member::find(tx, caller.org().id, account.id).await?.is_some()
        {
            return Err(Fault::from(ALREADY_MEMBER));
        }
        if Invite::sent_since(tx, caller.org().id, app.clock.now().minus(DAY)).await? >= A_DAY {
            return Err(Fault::from(RATE_LIMITED).retry_after(DAY));
        }
        let inviter = caller.session.account();
        let invite = Invite::send(tx, &app, caller.org(), inviter, &ask.email, ask.role).await?;
        let event = Event::MemberInvited { email: invite.email.clone(), role: invite.role };
        events::record(tx, &app, &caller.session.by(), About::in_org(invite.org_id), &event).await?;
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

async fn list_invites(State(app): State<App>, caller: InOrg<Admin>, page: Page) -> Result<Json<Invites>> {
    let list = format!("invites:{}", caller.org().id);
    let below = page.below(&app, &list)?;
    let mut invites = Invite::page(&app.db, caller.org().id, &below, page.fetch()).await?;
    let key = |invite: &Invite| Key { at: invite.created_at, id: invite.email_key.clone() };
    let next_cursor = page.cut(&app, &list, &mut invites, key);
    Ok(Json(Invites { invites, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct Whose {
    email: Email,
}

/// A new link for the same address and role; the old one no longer works.
async fn resend_invite(
    State(app): State<App>,
    caller: InOrg<Admin>,
    Path(Whose { email }): Path<Whose>,
) -> Result<Json<Invite>> {
    let now = app.clock.now();
    let invite = transact!(app.db, tx, {
        let pending = Invite::find(tx, caller.org().id, &email).await?.ok_or(NOT_FOUND)?;
        if pending.role > caller.role() {
            return Err(Fault::from(FORBIDDEN));
        }
        if now.since(pending.sent_at) < PAUSE {
            return Err(Fault::from(RATE_LIMITED).retry_after(PAUSE));
        }
        let inviter = caller.session.account();
        let invite = Invite::send(tx, &app, caller.org(), inviter, &email, pending.role).await?;
        let event = Event::InviteResent { email: invite.email.clone() };
        events::record(tx, &app, &caller.session.by(), About::in_org(invite.org_id), &event).await?;
        Ok(invite)
    })?;
    Ok(Json(invite))
}

async fn cancel_invite(
    State(app): State<App>,
    caller: InOrg<Admin>,
    Path(Whose { email }): Path<Whose>,
) -> Result<NoContent> {
    let org = caller.org().id;
    transact!(app.db, tx, {
        if !Invite::cancel(tx, org, &email).await? {
            return Err(Fault::from(NOT_FOUND));
        }
        let event = Event::InviteCancelled { email: email.as_str().to_owned() };
        Ok(events::record(tx, &app, &caller.session.by(), About::in_org(org), &event).await?)
    })?;
    Ok(NoContent)
}
