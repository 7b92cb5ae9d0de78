//! What is stored of skills and their versions, and every statement on those tables.
use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap},
};

use db::{Composed, Db, FromRow, FromValue, Read, Row, Tx, Value as Stored, holding, params, row};
use kernel::{Janua, clock::Timestamp, http::Key, id::Id};
use schemars::JsonSchema;
use semver::Version as Semver;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenancy::{accounts::AccountId, orgs::OrgId};
use unicode_normalization::UnicodeNormalization as _;

use super::{
    names::{Slug, skeleton},
    package::{Package, PackedFile},
    scan::{ENGINE, Finding, Scan, Verdict},
};

pub type SkillId = Id<Skill>;
pub type VersionId = Id<Version>;

/// An enumeration that is stored and shown as a word.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$case_about:meta])* $case:ident = $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum $name { $($(#[$case_about])* #[serde(rename = $word)] $case),+ }

        impl $name {
            pub fn name(self) -> &'static str {
                match self { $(Self::$case => $word),+ }
            }
        }

        impl From<$name> for Stored {
            fn from(value: $name) -> Self {
                Self::Text(value.name().into())
            }
        }

        impl FromValue for $name {
            fn from_value(value: Stored) -> Option<Self> {
                match String::from_value(value)?.as_str() { $($word => Some(Self::$case),)+ _ => None }
            }
        }
    };
}
pub(super) use words;

words! {
    /// The visibility of a skill.
    Visibility {
        Public = "public",
        /// Everybody who knows its slug.
        Unlisted = "unlisted",
        /// Members of the organization.
        Org = "org",
    }
}

words! {
    SkillState {
        Active = "active",
        /// Hidden after reports, until a platform owner has decided.
        UnderReview = "under_review",
        Removed = "removed",
    }
}

words! {
    VersionState {
        Published = "published",
        /// Waits for a platform owner.
        InReview = "in_review",
        Blocked = "blocked",
        /// Withdrawn by its publisher: still there for those who name it.
        Yanked = "yanked",
        /// Withdrawn by a platform owner: gone for everybody.
        Revoked = "revoked",
    }
}

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

words! {
    /// The order of a list.
    Sort {
        Popular = "popular",
        Recent = "recent",
        /// By the Bayesian score.
        Rating = "rating",
    }
}

/// Which skills are wanted.
#[derive(Debug, Default)]
pub struct Filter {
    pub query: Option<String>,
    pub sort: Option<Sort>,
    pub namespace: String,
    pub tag: String,
    pub verified: bool,
}

/// `$place` is where a skill stands in the list.
macro_rules! skills {
    ($place:literal, $rest:literal) => {
        concat!("SELECT skill.*, org.name AS org_name, ", $place, " AS place ", $rest)
    };
}

/// A page of listed skills in the order of a column: below `($1, $2)`, at most `$3`; `$4` asks for verified ones, `$5` for a
/// namespace, `$6` for a tag.
macro_rules! sorted {
    ($column:literal, $from:literal, $condition:literal) => {
        concat!(
            "SELECT skill.*, org.name AS org_name, skill.",
            $column,
            " AS place FROM ",
            $from,
            " LEFT JOIN org ON org.id = skill.org_id
              WHERE skill.is_listed AND (skill.",
            $column,
            ", skill.id) < ($1, $2) AND (NOT $4 OR skill.is_verified) ",
            $condition,
            " ORDER BY skill.",
            $column,
            " DESC, skill.id DESC LIMIT $3"
        )
    };
}
macro_rules! by_filter {
    ($column:literal) => {
        [
            sorted!($column, "skill", ""),
            sorted!($column, "skill", "AND skill.namespace = $5"),
            sorted!(
                $column,
                "skill_tag JOIN skill ON skill.id = skill_tag.skill_id",
                "AND ($5 = '' OR skill.namespace = $5) AND skill_tag.tag = $6"
            ),
            // A subquery of one value, so that no planner begins with the tag.
            sorted!(
                $column,
                "skill",
                "AND (SELECT 1 FROM skill_tag t WHERE t.tag = $6 AND t.skill_id = skill.id) = 1
                 AND ($5 = '' OR skill.namespace = $5)"
            ),
        ]
    };
}
const POPULAR: [&str; 4] = by_filter!("popularity");
const RECENT: [&str; 4] = by_filter!("updated_at");
const RATED: [&str; 4] = by_filter!("score");

fn statements(sort: Sort) -> [&'static str; 4] {
    match sort {
        Sort::Popular => POPULAR,
        Sort::Recent => RECENT,
        Sort::Rating => RATED,
    }
}

/// The words of skills that a search finds: the rarest one leads, the others must be there, too.
macro_rules! has_words {
    () => {
        "EXISTS (SELECT 1 FROM skill_word a WHERE a.skill_id = w.skill_id AND a.word = $7)
         AND EXISTS (SELECT 1 FROM skill_word b WHERE b.skill_id = w.skill_id AND b.word = $8)
         AND EXISTS (SELECT 1 FROM skill_word c WHERE c.skill_id = w.skill_id AND c.word = $9)"
    };
}
/// Among the heaviest thousand that a search finds.
macro_rules! found_by {
    ($column:literal) => {
        concat!(
            "SELECT skill.*, org.name AS org_name, skill.",
            $column,
            " AS place FROM skill
              LEFT JOIN org ON org.id = skill.org_id
              WHERE skill.id IN (SELECT w.skill_id FROM skill_word w WHERE w.word = $6 AND ",
            has_words!(),
            "                    ORDER BY w.weight DESC, w.skill_id DESC LIMIT 1000)
                AND skill.is_listed AND (skill.",
            $column,
            ", skill.id) < ($1, $2) AND (NOT $4 OR skill.is_verified)
                AND ($5 = '' OR skill.namespace = $5)
              ORDER BY skill.",
            $column,
            " DESC, skill.id DESC LIMIT $3"
        )
    };
}
const FOUND: &str = concat!(
    "SELECT skill.*, org.name AS org_name, w.weight AS place
     FROM skill_word w JOIN skill ON skill.id = w.skill_id LEFT JOIN org ON org.id = skill.org_id
     WHERE w.word = $6 AND (w.weight, w.skill_id) < ($1, $2) AND ",
    has_words!(),
    " AND skill.is_listed AND (NOT $4 OR skill.is_verified) AND ($5 = '' OR skill.namespace = $5)
     ORDER BY w.weight DESC, w.skill_id DESC LIMIT $3"
);

/// A tag of so many skills is common.
const COMMON: u32 = 500;
/// From so many on, words are not counted.
const MANY: u32 = 2000;
const TERMS: usize = 4;
const LONGEST_WORD: usize = 32;
const MOST_WORDS: usize = 150;

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

    /// One page of listed skills.
    pub async fn page(db: &Db, filter: &Filter, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let sort = filter.sort.unwrap_or(Sort::Popular);
        if let Some(query) = &filter.query {
            return Self::search(db, filter, query, sort, below, most).await;
        }
        let (namespace, tag) = (&filter.namespace, &filter.tag);
        if !tag.is_empty() {
            let is_common = namespace.is_empty() && Self::is_common(db, tag).await?;
            return Self::tagged(db, filter, is_common, below, most).await;
        }
        let by = statements(sort);
        if !namespace.is_empty() {
            return db.all(by[1], params![below.at, &below.id, most, filter.verified, namespace]).await;
        }
        db.all(by[0], params![below.at, &below.id, most, filter.verified]).await
    }

    async fn is_common(db: &Db, tag: &str) -> db::Result<bool> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM (SELECT 1 AS one FROM skill_tag WHERE tag = $1 LIMIT $2) AS found";
        let (count,): (i64,) = db.one(sql, params![tag, COMMON]).await?;
        Ok(count >= i64::from(COMMON))
    }

    /// Those of a tag. Of a rare one, all are read and sorted; of a common one, the list of all is read until there are enough.
    pub async fn tagged(db: &Db, filter: &Filter, is_common: bool, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let sql = statements(filter.sort.unwrap_or(Sort::Popular))[if is_common { 3 } else { 2 }];
        let values = params![below.at, &below.id, most, filter.verified, &filter.namespace, &filter.tag];
        db.all(sql, values).await
    }

    async fn search(
        db: &Db,
        filter: &Filter,
        query: &str,
        sort: Sort,
        below: &Key,
        most: u32,
    ) -> db::Result<Vec<Self>> {
        let mut terms = terms(query);
        if terms.is_empty() {
            return Ok(vec![]);
        }
        if !filter.tag.is_empty() {
            terms.insert(0, format!("#{}", filter.tag));
            terms.truncate(TERMS);
        }
        let lead = rarest(db, &terms).await?;
        terms.swap(0, lead);
        let first = terms[0].clone();
        terms.resize(TERMS, first);
        let sql = match sort {
            Sort::Popular => FOUND,
            Sort::Recent => found_by!("updated_at"),
            Sort::Rating => found_by!("score"),
        };
        let [a, b, c, d] = [&terms[0], &terms[1], &terms[2], &terms[3]];
        db.all(sql, params![below.at, &below.id, most, filter.verified, &filter.namespace, a, b, c, d]).await
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

/// The coarse weight of a popularity in the table of words.
pub fn weight(popularity: i64) -> i64 {
    i64::from(u64::try_from(popularity).unwrap_or_default().saturating_add(1).ilog2())
}

async fn rarest(db: &Db, terms: &[String]) -> db::Result<usize> {
    let (mut rarest, mut least) = (0, i64::MAX);
    for (number, term) in terms.iter().enumerate().filter(|_| terms.len() > 1) {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT skill_id FROM skill_word WHERE word = $1 LIMIT $2) AS counted";
        let (count,): (i64,) = db.one(sql, params![term, MANY]).await?;
        if count < least {
            (rarest, least) = (number, count);
        }
    }
    Ok(rarest)
}

fn split(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| word.nfkc().flat_map(char::to_lowercase).take(LONGEST_WORD).collect())
}

/// What a search looks for.
fn terms(query: &str) -> Vec<String> {
    let mut terms: Vec<String> = split(query).collect();
    terms.dedup();
    terms.truncate(TERMS);
    terms
}

/// The words that a skill is found by. The words of its name are found by their beginnings, too.
fn words_of(namespace: &str, name: &str, description: &str, tags: &[String]) -> BTreeSet<String> {
    const SHORTEST: usize = 3;
    let beginnings = |word: &str| -> Vec<String> {
        let letters: Vec<char> = word.chars().collect();
        (SHORTEST..=letters.len()).map(|length| letters[..length].iter().collect()).collect()
    };
    let of_name = name.split('-').flat_map(|word| std::iter::once(word.to_owned()).chain(beginnings(word)));
    let of_tags = tags.iter().flat_map(|tag| split(tag).chain([format!("#{tag}")]));
    let all = of_name.chain(split(namespace)).chain(of_tags).chain(split(description));
    let mut words = BTreeSet::new();
    for word in all {
        if words.len() == MOST_WORDS {
            break;
        }
        words.insert(word);
    }
    words
}

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

/// A line of an export.
#[derive(Serialize)]
pub struct Exported {
    slug: String,
    at: Timestamp,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(skip_serializing_if = "is_zero")]
    stars: i64,
}
row!(Exported { slug, at, text, stars });

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skill_is_found_by_the_beginnings_of_its_name_and_the_words_of_its_description() {
        let words = words_of("com.example", "pdf-tools", "Reads PDF files; \u{fc}bersetzt.", &["office".into()]);
        for word in
            ["pdf", "too", "tool", "tools", "example", "reads", "files", "\u{fc}bersetzt", "office", "#office"]
        {
            assert!(words.contains(word), "{word}: {words:?}");
        }
        assert!(!words.contains("rea") && !words.contains("to"));
        assert_eq!(terms("Acme.PDF  tools!"), ["acme", "pdf", "tools"]);
        assert!(terms("!!").is_empty());
    }

    #[test]
    fn the_latest_version_is_the_highest_that_is_no_prerelease() {
        let latest = |versions: &[&str]| versions.iter().copied().max_by(|a, b| by_number(a, b)).map(str::to_owned);
        assert_eq!(latest(&["1.9.0", "1.10.0", "2.0.0-rc.1"]).as_deref(), Some("1.10.0"));
        assert_eq!(latest(&["2.0.0-rc.1", "2.0.0-rc.2"]).as_deref(), Some("2.0.0-rc.2"));
        assert_eq!((weight(0), weight(1), weight(6), weight(7)), (0, 1, 2, 3));
    }
}
