//! The versions of a skill, their readmes, and the objects that they are stored in.
use std::collections::{BTreeSet, HashMap};

use db::{Composed, Db, FromRow, Read, Row, Tx, params, row};
use kernel::{Janua, clock::Timestamp, http::Key};
use serde_json::{Value, json};
use tenancy::accounts::AccountId;

use super::{SkillId, VersionId, VersionState};
use crate::skills::{
    package::{Package, PackedFile},
    scan::{ENGINE, Finding, Scan, Verdict},
};

struct StoredReadme {
    version_id: VersionId,
    html: String,
}
row!(StoredReadme { version_id, html });

/// One version of a skill. It never changes but for its state and its scan.
#[derive(Debug, Clone)]
#[expect(clippy::struct_field_names, reason = "the number of a version is called so, as its column and its field")]
pub struct Version {
    pub id: VersionId,
    pub skill_id: SkillId,
    pub version: String,
    pub digest: String,
    pub size: i64,
    pub object: String,
    pub pack: String,
    pub files: Vec<PackedFile>,
    pub frontmatter: Value,
    pub state: VersionState,
    pub reason: Option<String>,
    pub verdict: Verdict,
    pub engine: i64,
    pub findings: Vec<Finding>,
    pub manifest: Option<String>,
    pub signature: Option<String>,
    pub key_id: Option<String>,
    pub published_by: Option<AccountId>,
    pub created_at: Timestamp,
    pub published_at: Option<Timestamp>,
}

impl FromRow for Version {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let damaged = |error| db::Error::Driver(format!("a version of a skill is damaged: {error}"));
        Ok(Self {
            id: row.get("id")?,
            skill_id: row.get("skill_id")?,
            version: row.get("version")?,
            digest: row.get("digest")?,
            size: row.get("size")?,
            object: row.get("object")?,
            pack: row.get("pack")?,
            files: serde_json::from_value(row.get("files")?).map_err(damaged)?,
            frontmatter: row.get("frontmatter")?,
            state: row.get("state")?,
            reason: row.get("reason")?,
            verdict: row.get("verdict")?,
            engine: row.get("engine")?,
            findings: serde_json::from_value(row.get("findings")?).map_err(damaged)?,
            manifest: row.get("manifest")?,
            signature: row.get("signature")?,
            key_id: row.get("key_id")?,
            published_by: row.get("published_by")?,
            created_at: row.get("created_at")?,
            published_at: row.get("published_at")?,
        })
    }
}

impl Version {
    pub async fn find(mut from: impl Read, skill: SkillId, version: &str) -> db::Result<Option<Self>> {
        let sql = "SELECT * FROM skill_version WHERE skill_id = $1 AND version = $2";
        from.opt(sql, params![skill, version]).await
    }

    pub async fn by_id(mut from: impl Read, id: VersionId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM skill_version WHERE id = $1", params![id]).await
    }

    /// Newest first; with `all` those that only the publisher sees, too.
    pub async fn page(db: &Db, skill: SkillId, all: bool, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM skill_version WHERE skill_id = $1 AND (created_at, id) < ($2, $3)
                     AND ($4 OR state IN ('published', 'yanked', 'revoked'))
                   ORDER BY created_at DESC, id DESC LIMIT $5";
        db.all(sql, params![skill, below.at, &below.id, all, most]).await
    }

    pub fn key(&self) -> Key {
        Key { at: self.created_at, id: self.id.to_string() }
    }

    pub async fn count(tx: &mut Tx, skill: SkillId) -> db::Result<i64> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM skill_version WHERE skill_id = $1";
        let (count,): (i64,) = tx.one(sql, params![skill]).await?;
        Ok(count)
    }

    /// A new version that waits for a decision; nothing when the skill has one of this number.
    pub async fn insert(
        tx: &mut Tx,
        janua: &Janua,
        skill: SkillId,
        version: &str,
        new: &NewVersion<'_>,
    ) -> db::Result<Option<VersionId>> {
        let (package, now) = (new.package, janua.clock.now());
        let id = VersionId::new(&janua.entropy, now);
        let mut frontmatter = package.skill.frontmatter.clone();
        frontmatter["_tags"] = json!(package.skill.tags);
        let made = tx
            .exec(
                "INSERT INTO skill_version (id, skill_id, version, digest, size, object, pack, files, frontmatter, state,
                                            verdict, engine, findings, published_by, created_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'in_review', $10, $11, $12, $13, $14)
                 ON CONFLICT (skill_id, version) DO NOTHING",
                params![
                    id,
                    skill,
                    version,
                    &package.digest,
                    new.size,
                    new.object,
                    new.pack,
                    &json!(package.files),
                    &frontmatter,
                    new.scan.verdict,
                    i64::from(ENGINE),
                    &json!(new.scan.findings),
                    new.by,
                    now
                ],
            )
            .await?;
        if made == 0 {
            return Ok(None);
        }
        let sql = "INSERT INTO skill_readme (version_id, html) VALUES ($1, $2)";
        tx.exec(sql, params![id, new.readme]).await?;
        let sql = "UPDATE skill_object SET version_id = $2 WHERE object = $1 AND version_id IS NULL";
        for object in [new.object, new.pack] {
            if tx.exec(sql, params![object, id]).await? == 0 {
                // It was taken for an orphan meanwhile.
                return Err(db::Error::Missing);
            }
        }
        Ok(Some(id))
    }

    /// Signs it and makes it visible.
    pub async fn publish(
        tx: &mut Tx,
        id: VersionId,
        (manifest, signature, key): (&str, &str, &str),
        now: Timestamp,
    ) -> db::Result<bool> {
        let sql =
            "UPDATE skill_version SET state = 'published', reason = NULL, manifest = $2, signature = $3, key_id = $4,
                          published_at = $5 WHERE id = $1 AND state = 'in_review'";
        Ok(tx.exec(sql, params![id, manifest, signature, key, now]).await? == 1)
    }

    /// Puts it into another state, if it is in `from`.
    pub async fn set_state(
        tx: &mut Tx,
        id: VersionId,
        from: VersionState,
        to: VersionState,
        reason: Option<&str>,
    ) -> db::Result<bool> {
        let sql = "UPDATE skill_version SET state = $3, reason = $4 WHERE id = $1 AND state = $2";
        Ok(tx.exec(sql, params![id, from, to, reason]).await? == 1)
    }

    /// Notes the outcome of another scan.
    pub async fn rescanned(tx: &mut Tx, id: VersionId, scan: &Scan) -> db::Result<()> {
        let sql = "UPDATE skill_version SET verdict = $2, engine = $3, findings = $4 WHERE id = $1";
        tx.exec(sql, params![id, scan.verdict, i64::from(ENGINE), &json!(scan.findings)]).await.map(drop)
    }

    /// Versions that an earlier engine looked at, after one of them.
    pub async fn outdated(db: &Db, after: (i64, &str), most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM skill_version WHERE engine < $1 AND state IN ('published', 'in_review', 'yanked')
                     AND (engine, id) > ($2, $3) ORDER BY engine, id LIMIT $4";
        db.all(sql, params![i64::from(ENGINE), after.0, after.1, most]).await
    }

    /// Those that wait for a platform owner, oldest last.
    pub async fn waiting(db: &Db, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM skill_version WHERE state = 'in_review' AND (created_at, id) < ($1, $2)
                   ORDER BY created_at DESC, id DESC LIMIT $3";
        db.all(sql, params![below.at, &below.id, most]).await
    }

    /// Those of a page, in no order.
    pub async fn by_ids(db: &Db, ids: &[VersionId]) -> db::Result<Vec<Self>> {
        if ids.is_empty() {
            return Ok(vec![]);
        }
        let mut question = Composed::new("SELECT * FROM skill_version WHERE id IN (");
        question.values(ids.iter().copied()).sql(")");
        db.find(question).await
    }

    /// The readmes of a page of versions.
    pub async fn readmes(db: &Db, ids: &[VersionId]) -> db::Result<HashMap<VersionId, String>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let mut question = Composed::new("SELECT version_id, html FROM skill_readme WHERE version_id IN (");
        question.values(ids.iter().copied()).sql(")");
        let found: Vec<StoredReadme> = db.find(question).await?;
        Ok(found.into_iter().map(|StoredReadme { version_id, html }| (version_id, html)).collect())
    }

    pub async fn readme(db: &Db, id: VersionId) -> db::Result<String> {
        let found: Option<(String,)> =
            db.opt("SELECT html FROM skill_readme WHERE version_id = $1", params![id]).await?;
        Ok(found.map(|(html,)| html).unwrap_or_default())
    }

    /// The front matter as it was written.
    pub fn frontmatter(&self) -> Value {
        let mut frontmatter = self.frontmatter.clone();
        if let Some(fields) = frontmatter.as_object_mut() {
            fields.remove("_tags");
        }
        frontmatter
    }
}

/// What a new version is made of.
pub struct NewVersion<'a> {
    pub package: &'a Package,
    pub scan: &'a Scan,
    pub size: i64,
    pub object: &'a str,
    pub pack: &'a str,
    pub readme: &'a str,
    pub by: AccountId,
}

/// Objects, each noted before its bytes are written.
pub struct StoredObject;

impl StoredObject {
    pub async fn announce(tx: &mut Tx, object: &str, now: Timestamp) -> db::Result<()> {
        let sql = "INSERT INTO skill_object (object, created_at) VALUES ($1, $2)";
        tx.exec(sql, params![object, now]).await.map(drop)
    }

    /// Objects that no version has needed since a moment. They are taken out of use, so that no version begins to need them.
    pub async fn take_unused(db: &Db, before: Timestamp) -> db::Result<Vec<String>> {
        let sql = "UPDATE skill_object SET version_id = '-' WHERE object IN
                       (SELECT object FROM skill_object WHERE version_id IS NULL AND created_at < $1
                        ORDER BY created_at LIMIT 200) RETURNING object";
        let taken: Vec<(String,)> = db.put(sql, params![before]).await?;
        let sql = "SELECT object FROM skill_object WHERE version_id = '-' LIMIT 400";
        let mut all: Vec<(String,)> = db.all(sql, params![]).await?;
        all.extend(taken);
        let all: BTreeSet<String> = all.into_iter().map(|(object,)| object).collect();
        Ok(all.into_iter().collect())
    }

    pub async fn forget(db: &Db, object: &str) -> db::Result<()> {
        db.exec("DELETE FROM skill_object WHERE object = $1", params![object]).await.map(drop)
    }
}
