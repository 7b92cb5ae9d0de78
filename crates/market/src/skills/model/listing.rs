//! Lists of skills that everybody may see: by popularity, by time, by rating, of a namespace or tag, and by words.
use db::{Db, FromValue, Value as Stored, params};
use kernel::http::Key;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    search_words::{TERMS, terms},
    skill::Skill,
    words,
};

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

impl Skill {
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
