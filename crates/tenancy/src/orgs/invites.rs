//! Invites to an organization: for one email, once, for seven days.
use std::time::Duration;

use db::{Db, Read, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{self, Secret},
    fault::Result,
    http::Key,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    accounts::Account,
    email::Email,
    events::{self, By, happenings::InviteAccepted},
    ids::{AccountId, OrgId, Role},
    messages::mail::{self, Budget, Letter, Mail, Sample},
    orgs::{Org, members::OrgMember},
};

pub const LIFE: Duration = Duration::from_hours(7 * 24);

/// A pending invitation.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Invite {
    pub email: String,
    pub role: Role,
    pub invited_by: AccountId,
    pub created_at: Timestamp,
    pub sent_at: Timestamp,
    pub expires_at: Timestamp,
    #[serde(skip)]
    pub org_id: OrgId,
    #[serde(skip)]
    pub email_key: String,
}
row!(Invite { email, role, invited_by, created_at, sent_at, expires_at, org_id, email_key });

fn budget_of(org: &Org) -> Budget {
    Budget::Anybody { from: org.id.to_string() }
}

impl Invite {
    /// Invites an email. An earlier invite of the same email is replaced.
    pub async fn send(
        tx: &mut Tx,
        janua: &Janua,
        org: &Org,
        inviter: &Account,
        email: &Email,
        role: Role,
    ) -> db::Result<Self> {
        let is_sent = mail::may_send(tx, janua, email, &budget_of(org)).await?;
        let (invite, token) = Self::keep(tx, janua, org, inviter.id, email, role, is_sent).await?;
        if is_sent {
            let letter = Invitation { inviter: inviter.name.clone(), org: org.name.clone(), token };
            mail::send(tx, janua, email.as_str(), &letter).await?;
        }
        Ok(invite)
    }

    /// Invites a person whom the organization's identity provider announced, in the name of its first owner; `false`
    /// when the email had as many mails as it may get for now.
    pub async fn announce(tx: &mut Tx, janua: &Janua, org: &Org, email: &Email) -> db::Result<bool> {
        if !mail::may_send(tx, janua, email, &budget_of(org)).await? {
            return Ok(false);
        }
        // The index of admins and owners has the condition `role <> 'member'`.
        let sql = "SELECT account_id FROM org_member WHERE org_id = $1 AND role <> 'member' AND role = 'owner'
                   ORDER BY joined_at, account_id LIMIT 1";
        let (owner,): (AccountId,) = tx.one(sql, params![org.id]).await?;
        let (_, token) = Self::keep(tx, janua, org, owner, email, Role::Member, true).await?;
        let letter = Announced { org: org.name.clone(), token };
        mail::send(tx, janua, email.as_str(), &letter).await?;
        Ok(true)
    }

    /// Where the link is not sent, the one that was sent before stays good.
    async fn keep(
        tx: &mut Tx,
        janua: &Janua,
        org: &Org,
        inviter: AccountId,
        email: &Email,
        role: Role,
        is_sent: bool,
    ) -> db::Result<(Self, Secret)> {
        let (token, now) = (janua.entropy.token(), janua.clock.now());
        let sent: Vec<Self> = tx
            .put(
                "INSERT INTO org_invite (org_id, email_key, email, role, hash, invited_by, created_at, sent_at,
                                         expires_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8)
                 ON CONFLICT (org_id, email_key) DO UPDATE SET email = $3, role = $4, invited_by = $6,
                   hash = CASE WHEN $9 THEN $5 ELSE org_invite.hash END, sent_at = $7, expires_at = $8
                 RETURNING *",
                params![
                    org.id,
                    email.key(),
                    email.as_str(),
                    role,
                    crypto::hash(token.expose().as_bytes()),
                    inviter,
                    now,
                    now.plus(LIFE),
                    is_sent
                ],
            )
            .await?;
        let invite = sent.into_iter().next().ok_or_else(|| db::Error::Driver("an invite was not kept".into()))?;
        Ok((invite, token))
    }

    /// Finds the invite of an email, also an expired one.
    pub async fn find(tx: &mut Tx, org: OrgId, email: &Email) -> db::Result<Option<Self>> {
        let sql = "SELECT * FROM org_invite WHERE org_id = $1 AND email_key = $2";
        tx.opt(sql, params![org, email.key()]).await
    }

    /// One that could be accepted now. A look that decides nothing.
    pub async fn look(db: &Db, token: &Secret, now: Timestamp) -> db::Result<Option<Self>> {
        let sql = "SELECT * FROM org_invite WHERE hash = $1 AND expires_at > $2";
        db.opt(sql, params![crypto::hash(token.expose().as_bytes()), now]).await
    }

    /// Whether an organization asks this email in.
    pub async fn is_open_for(mut from: impl Read, email_key: &str, now: Timestamp) -> db::Result<bool> {
        let sql = "SELECT org_id FROM org_invite WHERE email_key = $1 AND expires_at > $2 LIMIT 1";
        Ok(from.opt::<(String,)>(sql, params![email_key, now]).await?.is_some())
    }

    pub async fn page(db: &Db, org: OrgId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM org_invite WHERE org_id = $1 AND (created_at, email_key) < ($2, $3)
             ORDER BY created_at DESC, email_key DESC LIMIT $4",
            params![org, below.at, &below.id, most],
        )
        .await
    }

    /// `false` when there was none.
    pub async fn cancel(tx: &mut Tx, org: OrgId, email: &Email) -> db::Result<bool> {
        let sql = "DELETE FROM org_invite WHERE org_id = $1 AND email_key = $2";
        Ok(tx.exec(sql, params![org, email.key()]).await? == 1)
    }

    /// Deletes the invites of an inviter with a role that the inviter may no longer give. Invites of persons that the
    /// identity provider announced stay.
    pub async fn withdraw(tx: &mut Tx, org: OrgId, inviter: AccountId, may_give: Option<Role>) -> db::Result<()> {
        let (admins, owners) = (may_give >= Some(Role::Admin), may_give >= Some(Role::Owner));
        tx.exec(
            "DELETE FROM org_invite WHERE org_id = $1 AND invited_by = $2
               AND NOT ((role = 'owner' AND $4) OR (role <> 'owner' AND $3))
               AND NOT EXISTS (SELECT 1 FROM person WHERE person.org_id = org_invite.org_id AND person.active
                                 AND person.email_key = org_invite.email_key AND person.source = 'scim')",
            params![org, inviter, admins, owners],
        )
        .await?;
        Ok(())
    }

    /// Accepts an invite: it is used up, and the user becomes a member. `None` when it was used, replaced or
    /// canceled, has expired, or is for another email than the one the user has proven.
    pub async fn accept(
        tx: &mut Tx,
        janua: &Janua,
        by: &By,
        token: &Secret,
        account: &Account,
    ) -> Result<Option<OrgId>> {
        let now = janua.clock.now();
        let proven = account.email_key.clone().filter(|_| account.email_verified);
        let spent: Vec<Self> = tx
            .put(
                "DELETE FROM org_invite WHERE hash = $1 AND expires_at > $2 AND email_key = $3 RETURNING *",
                params![crypto::hash(token.expose().as_bytes()), now, proven.unwrap_or_default()],
            )
            .await?;
        let Some(invite) = spent.into_iter().next() else { return Ok(None) };
        // Not while its last owner leaves.
        if !Org::hold(tx, invite.org_id).await? {
            return Ok(None);
        }
        OrgMember::add(tx, janua, invite.org_id, account.id, invite.role).await?;
        let by = By { actor: Some(account.id), ..by.clone() };
        let event = InviteAccepted { role: invite.role };
        events::record(tx, janua, &by, events::About::in_org(invite.org_id).person(account.id), &event).await?;
        Ok(Some(invite.org_id))
    }
}

pub(crate) const MAILS: &[Sample] = &[
    Sample(|| {
        Box::new(Invitation { inviter: "Grace".into(), org: "Navy".into(), token: "sample-token".to_owned().into() })
    }),
    Sample(|| Box::new(Announced { org: "Navy".into(), token: "sample-token".to_owned().into() })),
];

struct Invitation {
    inviter: String,
    org: String,
    token: Secret,
}

impl Mail for Invitation {
    fn name(&self) -> &'static str {
        "invite"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "You are invited to an organization on {service}",
            "{} invites you to join {}. The link works once, for this email, within seven days.",
            "If you do not expect this invitation, ignore this email.",
        )
        .with(&[&self.inviter, &self.org])
        .link("Accept invitation", "/auth/accept-invite", &self.token, LIFE)
    }
}

/// From an organization whose directory has the person in it.
struct Announced {
    org: String,
    token: Secret,
}

impl Mail for Announced {
    fn name(&self) -> &'static str {
        "announced"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Join your organization on {service}",
            "{} has added you to its directory. The link to join works once, for this email, within seven days. If you \
             have no account yet, one is created for you, and the organization can close it when you leave. An account \
             that you have stays your own.",
            "If you do not expect this invitation, ignore this email.",
        )
        .with(&[&self.org])
        .link("Join organization", "/auth/accept-invite", &self.token, LIFE)
    }
}
