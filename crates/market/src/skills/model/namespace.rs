//! Namespaces of skills, and who publishes under them.
use db::{Db, Read, Tx, params, row};
use kernel::clock::Timestamp;
use tenancy::orgs::OrgId;

use crate::skills::names::Slug;

/// Who publishes under a namespace.
pub struct Namespace {
    pub org_id: Option<OrgId>,
}
row!(Namespace { org_id });

impl Namespace {
    pub async fn find(mut from: impl Read, namespace: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT org_id FROM skill_namespace WHERE namespace = $1", params![namespace]).await
    }

    /// Whether the namespace is the organization's, from now on if it was nobody's. Whoever had it once keeps it.
    pub async fn claim(tx: &mut Tx, slug: &Slug, org: OrgId, now: Timestamp) -> db::Result<bool> {
        let sql = "INSERT INTO skill_namespace (namespace, org_id, domain, created_at) VALUES ($1, $2, $3, $4)
                   ON CONFLICT (namespace) DO NOTHING";
        tx.exec(sql, params![&slug.namespace, org, slug.domain(), now]).await?;
        Ok(Self::find(&mut *tx, &slug.namespace).await?.is_some_and(|found| found.org_id == Some(org)))
    }

    /// Namespaces that are domains, after one of them.
    pub async fn domains(db: &Db, after: &str, most: u32) -> db::Result<Vec<DomainOf>> {
        let sql = "SELECT namespace, org_id FROM skill_namespace
                   WHERE domain IS NOT NULL AND org_id IS NOT NULL AND namespace > $1 ORDER BY namespace LIMIT $2";
        db.all(sql, params![after, most]).await
    }

    /// Notes whether the domain of a namespace is proven.
    pub async fn set_verified(db: &Db, namespace: &str, is_verified: bool) -> db::Result<()> {
        let sql = "UPDATE skill SET is_verified = $2 WHERE id IN
                       (SELECT id FROM skill WHERE namespace = $1 AND is_verified <> $2 LIMIT $3)";
        db.sweep(sql, params![namespace, is_verified]).await.map(drop)
    }
}

pub struct DomainOf {
    pub namespace: String,
    pub org_id: OrgId,
}
row!(DomainOf { namespace, org_id });
