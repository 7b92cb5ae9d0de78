//! Organizations: what is stored of them, their members, invitations, directory people and SCIM tokens.
pub mod invites;
pub mod members;
pub mod people;
pub mod scim_tokens;

use std::collections::HashMap;

use db::{Composed, Db, FromRow, Reach, Read, Row, Tx, holding, params, row};
use kernel::{Janua, clock::Timestamp, fault::Code, http::Key};
use schemars::JsonSchema;
use serde::Serialize;

use crate::events::happenings::{AppDeleted, OrgDeleted};
pub use crate::ids::{OrgId, Role};
use crate::{
    apps::{Application, slugs},
    events::{self, About, By},
    gone,
    ids::{AccountId, ApplicationId, SessionId},
    quotas,
};

/// The topic on which a change to an organization or its members is told.
pub const TOPIC: &str = crate::ids::topic::ORG;

pub const LAST_OWNER: Code =
    Code::new(409, "last_owner", "An organization needs an owner. Make another member an owner first.");

#[derive(Debug, Clone)]
pub struct Org {
    pub id: OrgId,
    pub name: String,
    pub slug: String,
    pub tier: String,
    pub logo_url: Option<String>,
    pub primary_color: Option<String>,
    /// An object.
    pub metadata: serde_json::Value,
    /// Whether people with a verified email of a proven domain become members by signing in.
    pub auto_join: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
row!(Org { id, name, slug, tier, logo_url, primary_color, metadata, auto_join, created_at, updated_at });

impl Org {
    /// A new one with nothing in it.
    pub fn new(id: OrgId, name: &str, slug: &str, now: Timestamp) -> Self {
        Self {
            id,
            name: name.to_owned(),
            slug: slug.to_owned(),
            tier: quotas::FIRST_PLAN.to_owned(),
            logo_url: None,
            primary_color: None,
            metadata: serde_json::json!({}),
            auto_join: false,
            created_at: now,
            updated_at: now,
        }
    }

    /// Inserts the organization; `false` when another one has the slug.
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<bool> {
        let made = tx
            .exec(
                "INSERT INTO org (id, name, slug, tier, metadata, created_at, updated_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (slug) DO NOTHING",
                params![self.id, &self.name, &self.slug, &self.tier, &self.metadata, self.created_at],
            )
            .await?;
        Ok(made == 1)
    }

    pub async fn find(mut from: impl Read, id: OrgId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM org WHERE id = $1", params![id]).await
    }

    /// The names of some organizations: those of one page of a list.
    pub async fn names(db: &Db, ids: &[OrgId]) -> db::Result<HashMap<OrgId, String>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let mut question = Composed::new("SELECT id, name FROM org WHERE id IN (");
        question.values(ids.iter().copied()).sql(")");
        let found: Vec<OrgName> = db.find(question).await?;
        Ok(found.into_iter().map(|OrgName { id, name }| (id, name)).collect())
    }

    /// Locks the row, and with it the members, until the transaction ends; `false` when the organization is gone.
    pub async fn hold(tx: &mut Tx, id: OrgId) -> db::Result<bool> {
        let held: Option<(String,)> = tx.opt(holding!("SELECT id FROM org WHERE id = $1"), params![id]).await?;
        Ok(held.is_some())
    }

    /// Writes name, slug, branding and automatic joining; `false` when another organization has the slug.
    pub async fn save(&self, tx: &mut Tx) -> db::Result<bool> {
        let sql = "SELECT id FROM org WHERE slug = $1 AND id <> $2";
        if tx.opt::<(String,)>(sql, params![&self.slug, self.id]).await?.is_some() {
            return Ok(false);
        }
        tx.exec(
            "UPDATE org SET name = $2, slug = $3, primary_color = $4, logo_url = $5, updated_at = $6,
                            auto_join = $7
             WHERE id = $1",
            params![
                self.id,
                &self.name,
                &self.slug,
                self.primary_color.clone(),
                self.logo_url.clone(),
                self.updated_at,
                self.auto_join
            ],
        )
        .await?;
        changed(tx, self.id).await?;
        Ok(true)
    }

    /// `false` when it is gone.
    pub async fn set_logo(tx: &mut Tx, id: OrgId, url: &str, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE org SET logo_url = $2, updated_at = $3 WHERE id = $1";
        let is_there = tx.exec(sql, params![id, url, now]).await? == 1;
        changed(tx, id).await?;
        Ok(is_there)
    }

    /// Puts it on another plan; `false` when it is gone.
    pub async fn set_plan(tx: &mut Tx, id: OrgId, plan: &str, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE org SET tier = $2, updated_at = $3 WHERE id = $1";
        let is_there = tx.exec(sql, params![id, plan, now]).await? == 1;
        changed(tx, id).await?;
        Ok(is_there)
    }

    /// How many organizations, and apps with a plan of their own, are on each plan but the first.
    pub async fn plans_in_use(db: &Db) -> db::Result<Vec<PlanInUse>> {
        db.all(
            "SELECT plan, CAST(SUM(orgs) AS BIGINT) AS orgs, CAST(SUM(apps) AS BIGINT) AS apps FROM
                 (SELECT tier AS plan, COUNT(*) AS orgs, 0 AS apps FROM org WHERE tier <> 'free' GROUP BY tier
                  UNION ALL
                  SELECT plan, 0 AS orgs, COUNT(*) AS apps FROM app WHERE plan <> '' GROUP BY plan) used
             GROUP BY plan ORDER BY plan",
            params![],
        )
        .await
    }

    /// The organizations that are not on the first plan, with their plans.
    pub async fn on_paid_plans(db: &Db) -> db::Result<Vec<(OrgId, String)>> {
        let sql = "SELECT id, tier FROM org WHERE tier <> 'free'";
        let rows: Vec<OrgOnPlan> = db.all(sql, params![]).await?;
        Ok(rows.into_iter().map(|row| (row.id, row.tier)).collect())
    }

    /// All organizations, newest first.
    pub async fn page(db: &Db, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM org WHERE (created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3",
            params![below.at, &below.id, most],
        )
        .await
    }

    pub async fn save_metadata(&self, tx: &mut Tx) -> db::Result<()> {
        let sql = "UPDATE org SET metadata = $2, updated_at = $3 WHERE id = $1";
        tx.exec(sql, params![self.id, &self.metadata, self.updated_at]).await?;
        changed(tx, self.id).await
    }
}

struct OrgName {
    id: OrgId,
    name: String,
}
row!(OrgName { id, name });

struct OrgOnPlan {
    id: OrgId,
    tier: String,
}
row!(OrgOnPlan { id, tier });

/// A plan, and how many organizations are on it.
#[derive(Debug)]
pub struct PlanInUse {
    pub plan: String,
    pub orgs: i64,
    /// With a plan of their own.
    pub apps: i64,
}
row!(PlanInUse { plan, orgs, apps });

/// Deletes what may be many rows, some at a time, before the organization itself is deleted: on SQLite every other writer
/// would wait for all of it. Its owners stay until the end, and can ask again if this is cut off.
pub async fn empty(janua: &Janua, id: OrgId) -> db::Result<()> {
    let db = &janua.db;
    let apps: Vec<(ApplicationId,)> = db.all("SELECT id FROM app WHERE org_id = $1", params![id]).await?;
    for (application,) in apps {
        Application::empty(janua, application).await?;
    }
    gone::empty_org(janua, id).await?;
    for sql in [
        "UPDATE session SET org_id = NULL WHERE id IN (SELECT id FROM session WHERE org_id = $1 LIMIT $2)",
        "UPDATE account SET active_org_id = NULL WHERE id IN
             (SELECT id FROM account WHERE active_org_id = $1 LIMIT $2)",
        "DELETE FROM person_value WHERE org_id = $1 AND (person_id, path, item) IN
             (SELECT person_id, path, item FROM person_value WHERE org_id = $1 LIMIT $2)",
        "DELETE FROM person WHERE org_id = $1 AND id IN
             (SELECT id FROM person WHERE org_id = $1 AND COALESCE(role, '') <> 'owner' LIMIT $2)",
        "DELETE FROM org_invite WHERE org_id = $1 AND email_key IN
             (SELECT email_key FROM org_invite WHERE org_id = $1 LIMIT $2)",
    ] {
        db.sweep(sql, params![id]).await?;
    }
    remove_members(db, id).await
}

/// How many members go in one transaction.
const BATCH: u32 = 1000;

/// Removes all members but the owners, with their counter, so that the count is right if the deletion is cut off.
async fn remove_members(db: &Db, id: OrgId) -> db::Result<()> {
    loop {
        let removed = db::transact!(db, async |tx| {
            let removed: Vec<(AccountId,)> = tx
                .put(
                    "DELETE FROM org_member WHERE org_id = $1 AND account_id IN
                         (SELECT account_id FROM org_member WHERE org_id = $1 AND role <> 'owner' LIMIT $2)
                     RETURNING account_id",
                    params![id, BATCH],
                )
                .await?;
            let removed = i64::try_from(removed.len()).unwrap_or_default();
            quotas::give_back(tx, id, &quotas::MEMBERS, removed).await?;
            Ok(removed)
        })?;
        if removed < i64::from(BATCH) {
            return Ok(());
        }
    }
}

/// Ends an organization. Everything it owns goes with it, and that is written down. Call [`empty`] before.
pub async fn end(tx: &mut Tx, janua: &Janua, by: &By, id: OrgId) -> db::Result<()> {
    for application in Application::all_of(tx, id).await? {
        events::record(tx, janua, by, About::app(&application), &AppDeleted).await?;
        gone::app(tx, janua, application.id).await?;
        slugs::hold_back(tx, &application.slug, (id, by.actor), janua.clock.now()).await?;
    }
    events::record(tx, janua, by, About::in_org(id), &OrgDeleted).await?;
    gone::org(tx, janua, id).await?;
    tx.exec("DELETE FROM org WHERE id = $1", params![id]).await?;
    changed(tx, id).await?;
    // Sessions of its apps went, too; which ones is not worth knowing.
    tx.notify(Reach::EveryNode, crate::ids::topic::SESSION, "").await
}

/// The recipient of a mail.
pub struct Reader {
    pub email: String,
    pub name: String,
}
row!(Reader { email, name });

/// The owners and admins of an organization who have a verified email.
pub async fn admins_to_mail(tx: &mut Tx, org: OrgId) -> db::Result<Vec<Reader>> {
    tx.all(
        "SELECT account.email, account.name FROM org_member JOIN account ON account.id = org_member.account_id
         WHERE org_member.org_id = $1 AND org_member.role <> 'member' AND account.email_verified = $2
           AND account.email IS NOT NULL
         ORDER BY org_member.joined_at, account.id LIMIT 100",
        params![org, true],
    )
    .await
}

/// Tells every node that what it remembers of an organization may be wrong.
pub async fn changed(tx: &mut Tx, id: OrgId) -> db::Result<()> {
    tx.notify(Reach::EveryNode, TOPIC, id.to_string()).await
}

/// An organization as one of its members sees it.
#[derive(Debug, Clone)]
pub struct Membership {
    pub org: Org,
    pub role: Role,
}

impl FromRow for Membership {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self { role: row.get("role")?, org: Org::from_row(row)? })
    }
}

impl Membership {
    pub async fn of(mut from: impl Read, org: OrgId, account: AccountId) -> db::Result<Option<Self>> {
        from.opt(
            "SELECT org.*, org_member.role FROM org JOIN org_member ON org_member.org_id = org.id
             WHERE org.id = $1 AND org_member.account_id = $2",
            params![org, account],
        )
        .await
    }

    /// Those of one person, oldest first.
    pub async fn all_of(db: &Db, account: AccountId) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT org.*, org_member.role FROM org JOIN org_member ON org_member.org_id = org.id
             WHERE org_member.account_id = $1 ORDER BY org_member.joined_at, org.id LIMIT 1000",
            params![account],
        )
        .await
    }

    /// One in which a person may build: this one, if they may there, or the first.
    pub async fn may_build(tx: &mut Tx, account: AccountId, rather: Option<OrgId>) -> db::Result<Option<Self>> {
        let rather = rather.map(|id| id.to_string()).unwrap_or_default();
        tx.opt(
            "SELECT org.*, org_member.role FROM org_member JOIN org ON org.id = org_member.org_id
             WHERE org_member.account_id = $1 AND org_member.role <> 'member'
             ORDER BY CASE WHEN org.id = $2 THEN 0 ELSE 1 END, org_member.joined_at, org.id LIMIT 1",
            params![account, rather],
        )
        .await
    }

    /// The one a person acts for when they come in: the one they switched to last, or the first they joined.
    pub async fn active(tx: &mut Tx, account: AccountId) -> db::Result<Option<Self>> {
        tx.opt(
            "SELECT org.*, org_member.role FROM org_member JOIN org ON org.id = org_member.org_id
             WHERE org_member.account_id = $1
             ORDER BY CASE WHEN org.id = (SELECT active_org_id FROM account WHERE id = $1) THEN 0 ELSE 1 END,
                      org_member.joined_at, org.id
             LIMIT 1",
            params![account],
        )
        .await
    }
}

/// An organization as it is shown to one of its members.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrgView {
    pub id: OrgId,
    pub name: String,
    pub slug: String,
    /// The caller's role in the organization.
    pub role: Role,
    /// Its plan.
    pub tier: String,
    pub logo_url: Option<String>,
    /// As in `#1d4ed8`.
    pub primary_color: Option<String>,
    /// Whether users with a verified email at one of its verified domains become members when they sign in.
    pub auto_join: bool,
    pub created_at: Timestamp,
}

impl OrgView {
    pub fn of(membership: &Membership) -> Self {
        let Membership { org, role } = membership;
        Self {
            id: org.id,
            name: org.name.clone(),
            slug: org.slug.clone(),
            role: *role,
            tier: org.tier.clone(),
            logo_url: org.logo_url.clone(),
            primary_color: org.primary_color.clone(),
            auto_join: org.auto_join,
            created_at: org.created_at,
        }
    }
}

/// The organizations a person is in.
pub async fn of(tx: &mut Tx, account: AccountId) -> db::Result<Vec<OrgId>> {
    let sql = "SELECT org_id FROM org_member WHERE account_id = $1 ORDER BY org_id";
    let found: Vec<(OrgId,)> = tx.all(sql, params![account]).await?;
    Ok(found.into_iter().map(|(id,)| id).collect())
}

/// The organization a session acts for from now on.
pub async fn switch(tx: &mut Tx, session: SessionId, account: AccountId, org: OrgId) -> db::Result<()> {
    let sql = "UPDATE session SET org_id = $2 WHERE id = $1 AND account_id = $3";
    tx.exec(sql, params![session, org, account]).await?;
    tx.exec("UPDATE account SET active_org_id = $2 WHERE id = $1", params![account, org]).await?;
    tx.notify(Reach::EveryNode, crate::ids::topic::SESSION, session.to_string()).await
}

#[cfg(test)]
mod tests {
    use db::FromValue as _;

    use super::*;

    #[test]
    fn roles_are_in_order() {
        assert!(Role::Member < Role::Admin && Role::Admin < Role::Owner);
        assert_eq!(Role::from_value(Role::Admin.into()), Some(Role::Admin));
        assert_eq!(Role::from_value("root".into()), None);
    }
}
