//! Members of an organization: the stored rows, and the changes that come with joining and leaving.
use db::{Db, Tx, holding, params, row};
use kernel::{Janua, clock::Timestamp, fault::Result, http::Key};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    accounts::Account,
    apps::StoredAppKey,
    gone::{self, LostAccess},
    ids::{AccountId, AppKeyId, ApplicationId, OrgId, Role, SessionId},
    machines,
    orgs::{self, people},
    quotas,
    sessions::StoredSession,
};

/// A member of an organization.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Member")]
pub struct OrgMember {
    pub user_id: AccountId,
    pub email: Option<String>,
    pub name: String,
    pub avatar_url: Option<String>,
    pub role: Role,
    pub joined_at: Timestamp,
}
row!(OrgMember { user_id, email, name, avatar_url, role, joined_at });

impl OrgMember {
    pub async fn page(db: &Db, org: OrgId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT account.id AS user_id, account.email, account.name, account.avatar_url, org_member.role,
                    org_member.joined_at
             FROM org_member JOIN account ON account.id = org_member.account_id
             WHERE org_member.org_id = $1 AND (org_member.joined_at, org_member.account_id) < ($2, $3)
             ORDER BY org_member.joined_at DESC, org_member.account_id DESC LIMIT $4",
            params![org, below.at, &below.id, most],
        )
        .await
    }

    pub async fn find(tx: &mut Tx, org: OrgId, account: AccountId) -> db::Result<Option<Self>> {
        tx.opt(
            "SELECT account.id AS user_id, account.email, account.name, account.avatar_url, org_member.role,
                    org_member.joined_at
             FROM org_member JOIN account ON account.id = org_member.account_id
             WHERE org_member.org_id = $1 AND org_member.account_id = $2",
            params![org, account],
        )
        .await
    }

    /// Whether a member has proven this email.
    pub async fn has_verified_email(tx: &mut Tx, org: OrgId, email_key: &str) -> db::Result<bool> {
        let sql = "SELECT account.id FROM account JOIN org_member ON org_member.account_id = account.id
                   WHERE account.email_key = $2 AND account.email_verified = $3 AND org_member.org_id = $1";
        Ok(tx.opt::<(AccountId,)>(sql, params![org, email_key, true]).await?.is_some())
    }

    /// `false` when they are in already; their role stays what it is.
    /// Counts against the organization's quota.
    pub async fn add(tx: &mut Tx, janua: &Janua, org: OrgId, account: AccountId, role: Role) -> Result<bool> {
        let is_new = Self::insert(tx, janua, org, account, role).await?;
        if is_new {
            quotas::spend(tx, janua, org, &quotas::MEMBERS, 1).await?;
        }
        Ok(is_new)
    }

    async fn insert(tx: &mut Tx, janua: &Janua, org: OrgId, account: AccountId, role: Role) -> db::Result<bool> {
        let now = janua.clock.now();
        let added = tx
            .exec(
                "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (org_id, account_id) DO NOTHING",
                params![org, account, role, now],
            )
            .await?;
        if added == 1 {
            people::joined(tx, org, account, role, now).await?;
            let sql = "DELETE FROM org_departure WHERE org_id = $1 AND account_id = $2";
            tx.send(sql, params![org, account]).await?;
        }
        orgs::changed(tx, org).await?;
        Ok(added == 1)
    }

    /// Adds a user as a member by the domain of their verified email, if an organization has proven the domain and
    /// has this switched on. A former member, a user who is switched off in its directory, and a user beyond its
    /// quota is not added. Answers the organization that the user joined.
    pub async fn join_by_domain(tx: &mut Tx, janua: &Janua, account: &Account) -> Result<Option<OrgId>> {
        let Some(key) = account.email_key.as_deref().filter(|_| account.email_verified) else { return Ok(None) };
        let host = key.rsplit_once('@').and_then(|(_, host)| url::Host::parse(host).ok());
        let Some(url::Host::Domain(host)) = host else { return Ok(None) };
        // A proof whose record is gone at the moment stays good for what it was used for, and for nobody new.
        let found: Option<(OrgId,)> = tx
            .opt(
                "SELECT org.id FROM app_domain JOIN org ON org.id = app_domain.org_id
                 WHERE app_domain.domain = $1 AND app_domain.verified_at IS NOT NULL
                   AND app_domain.missing_since IS NULL AND org.auto_join
                   AND NOT EXISTS (SELECT 1 FROM org_member WHERE org_id = org.id AND account_id = $2)
                   AND NOT EXISTS (SELECT 1 FROM org_departure WHERE org_id = org.id AND account_id = $2)
                   AND NOT EXISTS (SELECT 1 FROM person WHERE org_id = org.id AND NOT active
                                     AND (account_id = $2 OR email_key = $3))",
                params![host, account.id, key],
            )
            .await?;
        let Some((org,)) = found else { return Ok(None) };
        let spent = quotas::try_spend(tx, janua, org.into(), &quotas::MEMBERS, 1).await?;
        if matches!(spent, quotas::Outcome::Refused(_)) {
            return Ok(None);
        }
        if !Self::insert(tx, janua, org, account.id, Role::Member).await? {
            // An invitation was accepted at the same moment.
            quotas::give_back(tx, org, &quotas::MEMBERS, 1).await?;
            return Ok(None);
        }
        Ok(Some(org))
    }

    pub async fn set_role(tx: &mut Tx, org: OrgId, account: AccountId, role: Role) -> db::Result<()> {
        Self::write_role(tx, org, account, role).await?;
        orgs::changed(tx, org).await
    }

    /// Like [`set_role`](Self::set_role), without a notice.
    pub(crate) async fn write_role(tx: &mut Tx, org: OrgId, account: AccountId, role: Role) -> db::Result<()> {
        let sql = "UPDATE org_member SET role = $3 WHERE org_id = $1 AND account_id = $2";
        match tx.exec(sql, params![org, account, role]).await? {
            // Somebody else has just ended the membership.
            0 => Ok(()),
            _ => people::note_role(tx, org, account, Some(role)).await,
        }
    }

    pub async fn remove(tx: &mut Tx, janua: &Janua, org: OrgId, account: AccountId) -> db::Result<()> {
        people::left(tx, org, account).await?;
        Self::take_out(tx, janua, org, account).await
    }

    /// Ends the membership, and nothing that the directory knows.
    async fn take_out(tx: &mut Tx, janua: &Janua, org: OrgId, account: AccountId) -> db::Result<()> {
        machines::states::owner_gone(tx, janua, account, Some(org)).await?;
        let sql = "DELETE FROM org_member WHERE org_id = $1 AND account_id = $2";
        if tx.exec(sql, params![org, account]).await? == 1 {
            quotas::give_back(tx, org, &quotas::MEMBERS, 1).await?;
            let sql =
                "INSERT INTO org_departure (org_id, account_id, left_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
            tx.send(sql, params![org, account, janua.clock.now()]).await?;
        }
        people::note_role(tx, org, account, None).await?;
        let sql = "UPDATE session SET org_id = NULL WHERE org_id = $1 AND account_id = $2";
        tx.exec(sql, params![org, account]).await?;
        let sql = "UPDATE account SET active_org_id = NULL WHERE id = $2 AND active_org_id = $1";
        tx.exec(sql, params![org, account]).await?;
        orgs::changed(tx, org).await
    }

    /// Ends a membership that the identity provider switched off, with the sessions and keys of it, in this
    /// transaction. Answers the sessions and keys that ended. An account that has its home here has no session left
    /// anywhere.
    pub async fn switch_off(
        tx: &mut Tx,
        janua: &Janua,
        org: OrgId,
        account: AccountId,
        is_home: bool,
        now: Timestamp,
    ) -> db::Result<Ended> {
        // Before anything else, as whoever begins a session does.
        Account::hold(tx, account).await?;
        gone::access(tx, janua, LostAccess { org, account, is_home }).await?;
        let sessions = if is_home {
            // Links and codes that were sent, too.
            tx.exec("UPDATE once SET used_at = $2 WHERE account_id = $1 AND used_at IS NULL", params![account, now])
                .await?;
            StoredSession::revoke_all(tx, account, None, now).await?
        } else {
            StoredSession::revoke_in(tx, org, account, now).await?
        };
        let keys = StoredAppKey::end_those_of(tx, org, account).await?;
        Self::take_out(tx, janua, org, account).await?;
        Ok(Ended { sessions, keys })
    }

    /// How many owners there are. Ask only while [holding](crate::orgs::Org::hold) the organization.
    /// The index of admins and owners has the condition `role <> 'member'`.
    pub async fn owners(tx: &mut Tx, org: OrgId) -> db::Result<i64> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM org_member
                   WHERE org_id = $1 AND role <> 'member' AND role = 'owner'";
        let (owners,): (i64,) = tx.one(sql, params![org]).await?;
        Ok(owners)
    }
}

/// Sessions and keys that ended with a membership.
#[derive(Debug)]
pub struct Ended {
    pub sessions: Vec<SessionId>,
    pub keys: Vec<(ApplicationId, AppKeyId)>,
}

/// An organization with one owner only.
pub struct Alone {
    pub id: OrgId,
    pub name: String,
    pub others: i64,
}
row!(Alone { id, name, others });

/// The organizations that a user owns alone, with the number of other members, for the deletion of the account.
pub async fn owned_alone(tx: &mut Tx, account: AccountId) -> db::Result<Vec<Alone>> {
    // All of them, in one order: two owners who leave at the same moment are one after the other.
    let held = holding!(
        "SELECT id FROM org WHERE id IN (SELECT org_id FROM org_member WHERE account_id = $1 AND role = 'owner')
         ORDER BY id"
    );
    tx.all::<(OrgId,)>(held, params![account]).await?;
    tx.all(
        "SELECT mine.org_id AS id, (SELECT name FROM org WHERE id = mine.org_id) AS name,
                (SELECT CAST(COUNT(*) AS BIGINT) FROM org_member WHERE org_id = mine.org_id AND account_id <> $1)
                  AS others
         FROM org_member AS mine
         WHERE mine.account_id = $1 AND mine.role = 'owner'
           AND NOT EXISTS (SELECT 1 FROM org_member AS other
                           WHERE other.org_id = mine.org_id AND other.account_id <> $1
                             AND other.role <> 'member' AND other.role = 'owner')",
        params![account],
    )
    .await
}
