//! Ratings: one a person and skill, by people who installed it. The score of a skill is its average, drawn towards the mean
//! of all skills while there are few ratings.
use std::time::Duration;

use axum::extract::State;
use db::{Read, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, NOT_FOUND, Result},
    http::{Json, Query, Routes},
    installation, transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{accounts::AccountId, enter::Session, orgs::Membership};

use super::{
    events::SkillRated,
    model::{Skill, SkillId, Visibility},
    view::{REVOKED, average, reach},
};

const NOT_INSTALLED: Code =
    Code::new(403, "not_installed", "Install the skill and use it for an hour before you rate it.");
const OWN_SKILL: Code =
    Code::new(403, "own_skill", "Members of the organization that publishes a skill cannot rate it.");
const RATED_RECENTLY: Code =
    Code::new(409, "rated_recently", "You rated this skill in the last 24 hours. Change your rating later.");

/// How long a skill is used before it is rated, and how long a rating stays as it is.
const USED_FOR: Duration = Duration::from_hours(1);
const STAYS: Duration = Duration::from_hours(24);
/// The mean of all skills counts as so many ratings.
const PRIOR: i64 = 10;
/// The mean before anything is rated, in thousandths.
const FIRST_MEAN: i64 = 3000;
const MEAN: &str = "skill_mean_rating";

pub fn routes() -> Routes {
    Routes::new("ratings")
        .post("/ratings/submit", submit_rating, "submit a rating for a skill")
        .fails(&[NOT_INSTALLED, OWN_SKILL, RATED_RECENTLY, NOT_FOUND, REVOKED])
        .get("/ratings/aggregate", show_aggregate, "aggregate ratings for a skill")
        .fails(&[NOT_FOUND, REVOKED])
        .for_any_origin()
}

#[derive(Deserialize, JsonSchema)]
struct NewRating {
    #[schemars(length(max = 200))]
    slug: String,
    #[schemars(range(min = 1, max = 5))]
    stars: i64,
    #[schemars(length(max = 1000))]
    comment: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RatingView {
    slug: String,
    stars: i64,
    comment: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// How many ratings have each number of stars.
#[derive(Serialize, JsonSchema)]
struct Histogram {
    #[serde(rename = "1")]
    one: i64,
    #[serde(rename = "2")]
    two: i64,
    #[serde(rename = "3")]
    three: i64,
    #[serde(rename = "4")]
    four: i64,
    #[serde(rename = "5")]
    five: i64,
}

#[derive(Serialize, JsonSchema)]
struct Aggregate {
    slug: String,
    count: i64,
    /// None without a rating.
    average: Option<f64>,
    /// The average, drawn towards the mean of all skills while there are few ratings.
    score: f64,
    histogram: Histogram,
}

#[expect(clippy::cast_precision_loss, reason = "a score is at most 5000")]
fn aggregate(skill: &Skill) -> Aggregate {
    let (average, count) = average(&skill.ratings);
    let [one, two, three, four, five] = skill.ratings;
    let histogram = Histogram { one, two, three, four, five };
    Aggregate { slug: skill.slug.clone(), count, average, score: skill.score as f64 / 1000.0, histogram }
}

#[derive(Serialize, JsonSchema)]
struct RatingAnswer {
    rating: RatingView,
    aggregate: Aggregate,
}

struct Earlier {
    stars: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
}
row!(Earlier { stars, created_at, updated_at });

async fn submit_rating(
    State(janua): State<Janua>,
    session: Session,
    Json(new): Json<NewRating>,
) -> Result<Json<RatingAnswer>> {
    let (skill, _) = reach(&janua, Some(&session), &new.slug).await?;
    let (account, now) = (session.account().id, janua.clock.now());
    if let Some(org) = skill.org_id
        && Membership::of(&janua.db, org, account).await?.is_some()
    {
        return Err(OWN_SKILL.into());
    }
    let comment = new.comment.map(|comment| comment.trim().to_owned()).filter(|comment| !comment.is_empty());
    let created_at = transact!(janua, async |tx| {
        // One after the other, so that the counters are those of the rows.
        Skill::hold(tx, skill.id).await?.ok_or(NOT_FOUND)?;
        let sql = "SELECT first_installed_at FROM skill_install WHERE account_id = $1 AND skill_id = $2";
        let (since,): (Timestamp,) = tx.opt(sql, params![account, skill.id]).await?.ok_or(NOT_INSTALLED)?;
        if now.since(since) < USED_FOR {
            return Err(NOT_INSTALLED.into());
        }
        let sql = "SELECT stars, created_at, updated_at FROM skill_rating WHERE skill_id = $1 AND account_id = $2";
        let earlier: Option<Earlier> = tx.opt(sql, params![skill.id, account]).await?;
        if earlier.as_ref().is_some_and(|earlier| now.since(earlier.updated_at) < STAYS) {
            return Err(RATED_RECENTLY.into());
        }
        let created_at = earlier.as_ref().map_or(now, |earlier| earlier.created_at);
        let sql = "INSERT INTO skill_rating (skill_id, account_id, stars, comment, created_at, updated_at)
                   VALUES ($1, $2, $3, $4, $5, $6)
                   ON CONFLICT (skill_id, account_id) DO UPDATE SET stars = $3, comment = $4, updated_at = $6";
        tx.exec(sql, params![skill.id, account, new.stars, comment.clone(), created_at, now]).await?;
        count(tx, skill.id, new.stars, earlier.map(|earlier| earlier.stars)).await?;
        let event = SkillRated { slug: skill.slug.clone(), stars: new.stars };
        session.record(tx, &janua, &event).await?;
        Ok(created_at)
    })?;
    let skill = Skill::by_id(&janua.db, skill.id).await?.ok_or(NOT_FOUND)?;
    let rating = RatingView { slug: skill.slug.clone(), stars: new.stars, comment, created_at, updated_at: now };
    Ok(Json(RatingAnswer { rating, aggregate: aggregate(&skill) }))
}

/// The score as SQL: `$mean` in thousandths counts as ten ratings.
macro_rules! score {
    ($mean:literal) => {
        concat!(
            "(10 * ",
            $mean,
            " + 1000 * (ratings_1 + 2 * ratings_2 + 3 * ratings_3 + 4 * ratings_4 + 5 * ratings_5))
             / (10 + ratings_1 + ratings_2 + ratings_3 + ratings_4 + ratings_5)"
        )
    };
}

/// Counts a rating in place of an earlier one, and computes the score anew.
async fn count(tx: &mut Tx, skill: SkillId, stars: i64, earlier: Option<i64>) -> db::Result<()> {
    let one = |of: i64| i64::from(stars == of) - i64::from(earlier == Some(of));
    let sql = "UPDATE skill SET ratings_1 = ratings_1 + $2, ratings_2 = ratings_2 + $3, ratings_3 = ratings_3 + $4,
                      ratings_4 = ratings_4 + $5, ratings_5 = ratings_5 + $6 WHERE id = $1";
    tx.exec(sql, params![skill, one(1), one(2), one(3), one(4), one(5)]).await?;
    let mean = mean(&mut *tx).await?;
    let sql = concat!("UPDATE skill SET score = ", score!("CAST($2 AS BIGINT)"), " WHERE id = $1");
    tx.exec(sql, params![skill, mean]).await.map(drop)
}

/// The mean of all ratings in thousandths, as of today's first minutes.
pub async fn mean(from: impl Read) -> db::Result<i64> {
    let kept = installation::read(from, MEAN).await?;
    Ok(kept.and_then(|mean| mean.parse().ok()).unwrap_or(FIRST_MEAN))
}

struct Sums {
    stars: Option<i64>,
    ratings: Option<i64>,
}
row!(Sums { stars, ratings });

/// Computes the mean of all skills and with it every score. Safe to repeat.
pub async fn renew(janua: &Janua) -> Result<()> {
    let sql = "SELECT CAST(SUM(ratings_1 + 2 * ratings_2 + 3 * ratings_3 + 4 * ratings_4 + 5 * ratings_5) AS BIGINT) AS stars,
                      CAST(SUM(ratings_1 + ratings_2 + ratings_3 + ratings_4 + ratings_5) AS BIGINT) AS ratings FROM skill";
    let sums: Sums = janua.db.one(sql, params![]).await?;
    let (stars, ratings) = (sums.stars.unwrap_or(0), sums.ratings.unwrap_or(0));
    // A few ratings say nothing of all skills.
    let mean = (PRIOR * FIRST_MEAN + 1000 * stars) / (PRIOR + ratings);
    transact!(janua, async |tx| Ok(installation::write(tx, MEAN, &mean.to_string()).await?))?;
    let sql = concat!(
        "UPDATE skill SET scored_on = $2, score = ",
        score!("CAST($1 AS BIGINT)"),
        " WHERE id IN (SELECT id FROM skill WHERE scored_on < $2 ORDER BY scored_on LIMIT $3)"
    );
    janua.db.sweep(sql, params![mean, janua.clock.now().day()]).await?;
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
struct AggregateQuery {
    #[schemars(length(min = 1, max = 200))]
    slug: String,
}

async fn show_aggregate(State(janua): State<Janua>, Query(query): Query<AggregateQuery>) -> Result<Json<Aggregate>> {
    let (skill, _) = reach(&janua, None, &query.slug).await?;
    debug_assert!(skill.visibility != Visibility::Org, "a stranger does not see it");
    Ok(Json(aggregate(&skill)))
}

/// Takes back the ratings of a person, before their account goes.
pub async fn forget(tx: &mut Tx, account: AccountId) -> db::Result<()> {
    for sql in [
        "UPDATE skill SET ratings_1 = ratings_1 - 1
         WHERE id IN (SELECT skill_id FROM skill_rating WHERE account_id = $1 AND stars = 1)",
        "UPDATE skill SET ratings_2 = ratings_2 - 1
         WHERE id IN (SELECT skill_id FROM skill_rating WHERE account_id = $1 AND stars = 2)",
        "UPDATE skill SET ratings_3 = ratings_3 - 1
         WHERE id IN (SELECT skill_id FROM skill_rating WHERE account_id = $1 AND stars = 3)",
        "UPDATE skill SET ratings_4 = ratings_4 - 1
         WHERE id IN (SELECT skill_id FROM skill_rating WHERE account_id = $1 AND stars = 4)",
        "UPDATE skill SET ratings_5 = ratings_5 - 1
         WHERE id IN (SELECT skill_id FROM skill_rating WHERE account_id = $1 AND stars = 5)",
    ] {
        tx.exec(sql, params![account]).await?;
    }
    let mean = mean(&mut *tx).await?;
    let sql = concat!(
        "UPDATE skill SET score = ",
        score!("CAST($2 AS BIGINT)"),
        " WHERE id IN (SELECT skill_id FROM skill_rating WHERE account_id = $1)"
    );
    tx.exec(sql, params![account, mean]).await?;
    tx.exec("DELETE FROM skill_rating WHERE account_id = $1", params![account]).await.map(drop)
}
