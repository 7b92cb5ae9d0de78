//! A skill, whatever its versions, and what it is found by.
use std::cmp::Ordering;

use db::{Composed, Db, FromRow, Read, Row, Tx, holding, params, row};
use kernel::{Janua, clock::Timestamp, http::Key};
use semver::Version as Semver;
use serde_json::{Value, json};
use tenancy::orgs::OrgId;

use super::{
    SkillId, SkillState, VersionId, Visibility,
    search_words::{weight, words_of},
};
use crate::skills::names::{Slug, skeleton};

#[derive(Debug, Clone)]
pub struct Skill {
    pub id: SkillId,
    pub slug: String,
    pub namespace: String,
    pub name: String,
    pub org_id: Option<OrgId>,
    pub org_name: Option<String>,
    pub domain: Option<String>,
    pub is_verified: bool,
    pub visibility: Visibility,
    pub state: SkillState,
    pub description: String,
    pub license: Option<String>,
    pub tags: Vec<String>,
    pub latest_id: Option<VersionId>,
    pub latest_version: Option<String>,
    pub stars: i64,
    pub installs: i64,
    pub downloads: i64,
    /// How many ratings have one star, two stars and so on.
    pub ratings: [i64; 5],
    /// In thousandths.
    pub score: i64,
    pub popularity: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Where it stands in the list it was read from.
    place: i64,
}

impl FromRow for Skill {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            slug: row.get("slug")?,
            namespace: row.get("namespace")?,
            name: row.get("name")?,
            org_id: row.get("org_id")?,
            org_name: row.get("org_name")?,
            domain: row.get("domain")?,
            is_verified: row.get("is_verified")?,
            visibility: row.get("visibility")?,
            state: row.get("state")?,
            description: row.get("description")?,
            license: row.get("license")?,
            tags: row.get("tags")?,
            latest_id: row.get("latest_id")?,
            latest_version: row.get("latest_version")?,
            stars: row.get("stars")?,
            installs: row.get("installs")?,
            downloads: row.get("downloads")?,
            ratings: [
                row.get("ratings_1")?,
                row.get("ratings_2")?,
                row.get("ratings_3")?,
                row.get("ratings_4")?,
                row.get("ratings_5")?,
            ],
            score: row.get("score")?,
            popularity: row.get("popularity")?,
            created_at: row.get("created_at")?,
            updated_at: row.get("updated_at")?,
            place: row.get("place")?,
        })
    }
}

/// `$place` is where a skill stands in the list.
macro_rules! skills {
    ($place:literal, $rest:literal) => {
        concat!("SELECT skill.*, org.name AS org_name, ", $place, " AS place ", $rest)
    };
}

impl Skill {
    /// Where it stands in its list.
    pub fn key(&self) -> Key {
        Key { at: Timestamp(self.place), id: self.id.to_string() }
    }

    pub async fn find(mut from: impl Read, slug: &str) -> db::Result<Option<Self>> {
        let sql = skills!("0", "FROM skill LEFT JOIN org ON org.id = skill.org_id WHERE skill.slug = $1");
        from.opt(sql, params![slug]).await
    }

    pub async fn by_id(mut from: impl Read, id: SkillId) -> db::Result<Option<Self>> {
        let sql = skills!("0", "FROM skill LEFT JOIN org ON org.id = skill.org_id WHERE skill.id = $1");
        from.opt(sql, params![id]).await
    }

    /// Those of a page of something else, in no order.
    pub async fn by_ids(db: &Db, ids: &[SkillId]) -> db::Result<Vec<Self>> {
        if ids.is_empty() {
            return Ok(vec![]);
        }
        let sql = skills!("0", "FROM skill LEFT JOIN org ON org.id = skill.org_id WHERE skill.id IN (");
        let mut question = Composed::new(sql);
        question.values(ids.iter().copied()).sql(")");
        db.find(question).await
    }

    /// The skill of an organization under another of its namespaces.
    pub async fn renamed(mut from: impl Read, org_slug: &str, name: &str) -> db::Result<Option<Self>> {
        let sql = skills!(
            "0",
            "FROM org JOIN skill ON skill.org_id = org.id WHERE org.slug = $1 AND skill.name = $2 AND skill.domain IS NULL
             ORDER BY skill.created_at, skill.id LIMIT 1"
        );
        from.opt(sql, params![org_slug, name]).await
    }

    /// Locks the row until the transaction ends.
    pub async fn hold(tx: &mut Tx, id: SkillId) -> db::Result<Option<Self>> {
        tx.opt::<(String,)>(holding!("SELECT id FROM skill WHERE id = $1"), params![id]).await?;
        Self::by_id(&mut *tx, id).await
    }

    /// The skills of an organization, newest first, whatever their state.
    pub async fn of_org(db: &Db, org: OrgId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let sql = skills!(
            "skill.created_at",
            "FROM skill LEFT JOIN org ON org.id = skill.org_id
             WHERE skill.org_id = $1 AND (skill.created_at, skill.id) < ($2, $3)
             ORDER BY skill.created_at DESC, skill.id DESC LIMIT $4"
        );
        db.all(sql, params![org, below.at, &below.id, most]).await
    }

    pub async fn count_of_org(tx: &mut Tx, org: OrgId) -> db::Result<i64> {
        let (count,): (i64,) =
            tx.one("SELECT CAST(COUNT(*) AS BIGINT) FROM skill WHERE org_id = $1", params![org]).await?;
        Ok(count)
    }

    /// Skills with many installs in other namespaces: the slugs and skeletons of those a name could be taken for.
    pub async fn well_known(db: &Db, but: &str) -> db::Result<Vec<WellKnown>> {
        let sql = "SELECT slug, skeleton FROM skill WHERE installs >= 100 AND namespace <> $1
                   ORDER BY installs DESC LIMIT 10000";
        db.all(sql, params![but]).await
    }

    /// A new skill without a version; `false` when the slug is taken.
    pub async fn insert(
        tx: &mut Tx,
        janua: &Janua,
        slug: &Slug,
        (org, is_verified): (OrgId, bool),
        visibility: Visibility,
        mean: i64,
    ) -> db::Result<Option<SkillId>> {
        let now = janua.clock.now();
        let id = SkillId::new(&janua.entropy, now);
        let made = tx
            .exec(
                "INSERT INTO skill (id, slug, namespace, name, skeleton, org_id, domain, is_verified, visibility, state,
                                    is_listed, description, tags, score, scored_on, created_at, updated_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'active', $10, '', '[]', $11, $12, $13, $13)
                 ON CONFLICT (slug) DO NOTHING",
                params![
                    id,
                    slug.to_string(),
                    &slug.namespace,
                    &slug.name,
                    skeleton(&slug.name),
                    org,
                    slug.domain(),
                    is_verified,
                    visibility,
                    false,
                    mean,
                    now.day(),
                    now
                ],
            )
            .await?;
        Ok((made == 1).then_some(id))
    }

    pub async fn set_visibility(tx: &mut Tx, id: SkillId, visibility: Visibility) -> db::Result<()> {
        tx.exec("UPDATE skill SET visibility = $2 WHERE id = $1", params![id, visibility]).await.map(drop)
    }

    /// `false` when it is in that state already.
    pub async fn set_state(tx: &mut Tx, id: SkillId, state: SkillState) -> db::Result<bool> {
        let sql = "UPDATE skill SET state = $2 WHERE id = $1 AND state <> $2";
        Ok(tx.exec(sql, params![id, state]).await? == 1)
    }

    /// Counts a download.
    pub async fn note_download(db: &Db, id: SkillId) -> db::Result<()> {
        db.exec("UPDATE skill SET downloads = downloads + 1 WHERE id = $1", params![id]).await.map(drop)
    }

    /// Finds its latest version, and whether it is listed; writes what it is found by. Call it in the transaction of
    /// everything that may change either. `published` is the moment of a new version.
    pub async fn settle(tx: &mut Tx, id: SkillId, published: Option<Timestamp>) -> db::Result<()> {
        let Some(skill) = Self::hold(tx, id).await? else { return Ok(()) };
        let sql = "SELECT id, version FROM skill_version WHERE skill_id = $1 AND state = 'published'";
        let versions: Vec<Numbered> = tx.all(sql, params![id]).await?;
        let latest = versions.into_iter().max_by(|a, b| by_number(&a.version, &b.version));
        let is_listed =
            latest.is_some() && skill.visibility == Visibility::Public && skill.state == SkillState::Active;
        let (mut description, mut license, mut tags) = (skill.description, skill.license, skill.tags);
        if let Some(latest) = latest.as_ref().filter(|latest| skill.latest_id != Some(latest.id)) {
            let sql = "SELECT frontmatter FROM skill_version WHERE id = $1";
            let (frontmatter,): (Value,) = tx.one(sql, params![latest.id]).await?;
            let text = |name: &str| frontmatter[name].as_str().map(|text| text.trim().to_owned());
            description = text("description").unwrap_or_default();
            license = text("license").filter(|text| !text.is_empty());
            tags = serde_json::from_value(frontmatter["_tags"].clone()).unwrap_or_default();
        }
        let weight = weight(skill.popularity);
        tx.exec(
            "UPDATE skill SET latest_id = $2, latest_version = $3, is_listed = $4, description = $5, license = $6, tags = $7,
                              weight = $8, updated_at = $9 WHERE id = $1",
            params![
                id,
                latest.as_ref().map(|latest| latest.id),
                latest.map(|latest| latest.version),
                is_listed,
                &description,
                license,
                &json!(tags),
                weight,
                published.unwrap_or(skill.updated_at)
            ],
        )
        .await?;
        tx.exec("DELETE FROM skill_word WHERE skill_id = $1", params![id]).await?;
        tx.exec("DELETE FROM skill_tag WHERE skill_id = $1", params![id]).await?;
        if !is_listed {
            return Ok(());
        }
        for tag in &tags {
            tx.send("INSERT INTO skill_tag (tag, skill_id) VALUES ($1, $2)", params![tag, id]).await?;
        }
        for word in words_of(&skill.namespace, &skill.name, &description, &tags) {
            let sql = "INSERT INTO skill_word (word, weight, skill_id) VALUES ($1, $2, $3)";
            tx.send(sql, params![word, weight, id]).await?;
        }
        Ok(())
    }
}

pub struct WellKnown {
    pub slug: String,
    pub skeleton: String,
}
row!(WellKnown { slug, skeleton });

struct Numbered {
    id: VersionId,
    version: String,
}
row!(Numbered { id, version });

/// The order of versions. A prerelease is only the latest where there is nothing else.
fn by_number(a: &str, b: &str) -> Ordering {
    match (Semver::parse(a), Semver::parse(b)) {
        (Ok(a), Ok(b)) => a.pre.is_empty().cmp(&b.pre.is_empty()).then_with(|| a.cmp(&b)),
        _ => a.cmp(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_version_is_the_highest_that_is_no_prerelease() {
        let latest = |versions: &[&str]| versions.iter().copied().max_by(|a, b| by_number(a, b)).map(str::to_owned);
        assert_eq!(latest(&["1.9.0", "1.10.0", "2.0.0-rc.1"]).as_deref(), Some("1.10.0"));
        assert_eq!(latest(&["2.0.0-rc.1", "2.0.0-rc.2"]).as_deref(), Some("2.0.0-rc.2"));
    }
}
