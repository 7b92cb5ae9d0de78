//! Stars and installs. Each is a row of a person, and its counter changes in the same transaction.
use axum::{extract::State, response::NoContent};
use db::{FromRow, Row, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{NOT_FOUND, Result},
    http::{Json, Key, Listed, MaybeJson, Page, Path, Routes},
    jobs, transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{accounts::AccountId, enter::Session};

use super::{
    events::{SkillInstalled, SkillStarred, SkillUninstalled, SkillUnstarred},
    jobs::Reindex,
    model::{Skill, SkillId, SkillState, Version, VersionId, VersionState, weight},
    publish::{SkillPath, TOO_MANY_SKILLS},
    view::{REVOKED, SignatureView, UNDER_REVIEW, choose, reach, signature},
};

/// How many stars, and how many installs, one person has.
const MOST_OF_PERSON: i64 = 1000;

pub fn routes() -> Routes {
    Routes::new("skills")
        .get("/skills/installed", list_installed, "skills installed by the user, newest first")
        .post("/skills/{slug}/star", star_skill, "star a skill")
        .fails(&[NOT_FOUND, REVOKED, TOO_MANY_SKILLS])
        .delete("/skills/{slug}/star", unstar_skill, "remove a star")
        .fails(&[NOT_FOUND])
        .post("/skills/{slug}/install", install_skill, "install a skill for the current user")
        .fails(&[NOT_FOUND, REVOKED, UNDER_REVIEW, TOO_MANY_SKILLS])
        .delete("/skills/{slug}/install", uninstall_skill, "uninstall a skill")
        .fails(&[NOT_FOUND])
}

/// What a person has of a skill.
pub struct Mine {
    pub starred: bool,
    /// The installed version.
    pub version: Option<String>,
}

pub async fn of(janua: &Janua, skill: SkillId, account: AccountId) -> db::Result<Mine> {
    let sql = "SELECT skill_id FROM skill_star WHERE skill_id = $1 AND account_id = $2";
    let starred = janua.db.opt::<(String,)>(sql, params![skill, account]).await?.is_some();
    let sql = "SELECT skill_version.version FROM skill_install
               JOIN skill_version ON skill_version.id = skill_install.version_id
               WHERE skill_install.account_id = $2 AND skill_install.skill_id = $1";
    let version: Option<(String,)> = janua.db.opt(sql, params![skill, account]).await?;
    Ok(Mine { starred, version: version.map(|(version,)| version) })
}

struct Counted {
    stars: i64,
    popularity: i64,
    weight: i64,
}
row!(Counted { stars, popularity, weight });

/// Changes the counters of a skill. Where that makes it much more or less popular, its words are written anew by a job.
async fn count(tx: &mut Tx, janua: &Janua, skill: SkillId, stars: i64, installs: i64) -> db::Result<i64> {
    let sql = "UPDATE skill SET stars = stars + $2, installs = installs + $3,
                      popularity = (installs + $3) * 3 + stars + $2
               WHERE id = $1 RETURNING stars, popularity, weight";
    let counted: Vec<Counted> = tx.put(sql, params![skill, stars, installs]).await?;
    let Some(counted) = counted.into_iter().next() else { return Ok(0) };
    if weight(counted.popularity) != counted.weight {
        let (now, unique) = (janua.clock.now(), format!("reindex_skill:{skill}"));
        jobs::enqueue_at(tx, janua, now, now, Some(&unique), &Reindex { skill }).await?;
    }
    Ok(counted.stars)
}

#[derive(Serialize, JsonSchema)]
struct Starred {
    starred: bool,
    stars: i64,
}

async fn star_skill(
    State(janua): State<Janua>,
    session: Session,
    Path(SkillPath { slug }): Path<SkillPath>,
) -> Result<Json<Starred>> {
    let (skill, _) = reach(&janua, Some(&session), &slug).await?;
    let account = session.account().id;
    let stars = transact!(janua, async |tx| {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM skill_star WHERE account_id = $1";
        let (count_of_person,): (i64,) = tx.one(sql, params![account]).await?;
        if count_of_person >= MOST_OF_PERSON {
            return Err(TOO_MANY_SKILLS.into());
        }
        let sql =
            "INSERT INTO skill_star (skill_id, account_id, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        let made = tx.exec(sql, params![skill.id, account, janua.clock.now()]).await?;
        let stars = count(tx, &janua, skill.id, i64::from(made == 1), 0).await?;
        if made == 1 {
            session.record(tx, &janua, &SkillStarred { slug: skill.slug.clone() }).await?;
        }
        Ok(stars)
    })?;
    Ok(Json(Starred { starred: true, stars }))
}

async fn unstar_skill(
    State(janua): State<Janua>,
    session: Session,
    Path(SkillPath { slug }): Path<SkillPath>,
) -> Result<NoContent> {
    let skill = own_or_visible(&janua, &session, &slug).await?;
    let account = session.account().id;
    transact!(janua, async |tx| {
        let sql = "DELETE FROM skill_star WHERE skill_id = $1 AND account_id = $2";
        if tx.exec(sql, params![skill.id, account]).await? == 1 {
            count(tx, &janua, skill.id, -1, 0).await?;
            session.record(tx, &janua, &SkillUnstarred { slug: skill.slug.clone() }).await?;
        }
        Ok(())
    })?;
    Ok(NoContent)
}

/// A skill that the caller may see, or has something of: it can be let go of after it was removed or made private.
async fn own_or_visible(janua: &Janua, session: &Session, slug: &str) -> Result<Skill> {
    match reach(janua, Some(session), slug).await {
        Ok((skill, _)) => Ok(skill),
        Err(fault) => {
            let skill = Skill::find(&janua.db, slug).await?.ok_or(NOT_FOUND)?;
            let mine = of(janua, skill.id, session.account().id).await?;
            let has_something = mine.starred || mine.version.is_some();
            if has_something {
                Ok(skill)
            } else {
                Err(if fault.code() == REVOKED { NOT_FOUND.into() } else { fault })
            }
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct InstallRequest {
    /// Default: the latest. A yanked version must be named.
    #[schemars(length(min = 1, max = 64))]
    version: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct InstallAnswer {
    slug: String,
    version: String,
    /// Of the package: `sha256:` and 64 hexadecimal digits.
    digest: String,
    signature: Option<SignatureView>,
    download_url: String,
}

async fn install_skill(
    State(janua): State<Janua>,
    session: Session,
    Path(SkillPath { slug }): Path<SkillPath>,
    MaybeJson(wanted): MaybeJson<InstallRequest>,
) -> Result<Json<InstallAnswer>> {
    let (skill, standing) = reach(&janua, Some(&session), &slug).await?;
    let wanted = wanted.and_then(|wanted| wanted.version);
    let version = choose(&janua, &skill, standing, wanted.as_deref()).await?;
    transact!(janua, async |tx| install(tx, &janua, &session, &skill, &version).await)?;
    let download_url =
        format!("{}/skills/{}/download?version={}", janua.config.base_url(), skill.slug, encoded(&version.version));
    Ok(Json(InstallAnswer {
        slug: skill.slug,
        digest: format!("sha256:{}", version.digest),
        signature: signature(&version),
        version: version.version,
        download_url,
    }))
}

/// A version in a query: only a plus sign means something else there.
pub fn encoded(version: &str) -> String {
    version.replace('+', "%2B")
}

async fn install(tx: &mut Tx, janua: &Janua, session: &Session, skill: &Skill, version: &Version) -> Result<()> {
    let (account, now) = (session.account().id, janua.clock.now());
    // What was withdrawn meanwhile is not installed.
    let held = Skill::hold(tx, skill.id).await?.ok_or(NOT_FOUND)?;
    let fresh = Version::by_id(&mut *tx, version.id).await?.ok_or(NOT_FOUND)?;
    if held.state == SkillState::Removed || !matches!(fresh.state, VersionState::Published | VersionState::Yanked) {
        return Err(REVOKED.into());
    }
    let sql = "SELECT version_id FROM skill_install WHERE account_id = $1 AND skill_id = $2";
    let before: Option<(VersionId,)> = tx.opt(sql, params![account, skill.id]).await?;
    if before.is_none() && held.state == SkillState::UnderReview {
        return Err(UNDER_REVIEW.into());
    }
    if before.is_some_and(|(before,)| before == version.id) {
        return Ok(());
    }
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM skill_install WHERE account_id = $1";
    let (count_of_person,): (i64,) = tx.one(sql, params![account]).await?;
    if before.is_none() && count_of_person >= MOST_OF_PERSON {
        return Err(TOO_MANY_SKILLS.into());
    }
    let sql = "INSERT INTO skill_install (account_id, skill_id, version_id, first_installed_at, installed_at)
               VALUES ($1, $2, $3, $4, $4)
               ON CONFLICT (account_id, skill_id) DO UPDATE SET version_id = $3, installed_at = $4";
    tx.exec(sql, params![account, skill.id, version.id, now]).await?;
    // The skill's row is held, so that two requests of one person count once.
    count(tx, janua, skill.id, 0, i64::from(before.is_none())).await?;
    let event = SkillInstalled { slug: skill.slug.clone(), version: version.version.clone() };
    Ok(session.record(tx, janua, &event).await?)
}

async fn uninstall_skill(
    State(janua): State<Janua>,
    session: Session,
    Path(SkillPath { slug }): Path<SkillPath>,
) -> Result<NoContent> {
    let skill = own_or_visible(&janua, &session, &slug).await?;
    let account = session.account().id;
    transact!(janua, async |tx| {
        Skill::hold(tx, skill.id).await?;
        let sql = "DELETE FROM skill_install WHERE skill_id = $1 AND account_id = $2";
        if tx.exec(sql, params![skill.id, account]).await? == 1 {
            count(tx, &janua, skill.id, 0, -1).await?;
            session.record(tx, &janua, &SkillUninstalled { slug: skill.slug.clone() }).await?;
        }
        Ok(())
    })?;
    Ok(NoContent)
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct InstalledSkill {
    slug: String,
    version: String,
    /// The latest version; an update is available where it is another one.
    latest: Option<String>,
    yanked: bool,
    /// Whether it was withdrawn: remove it.
    revoked: bool,
    installed_at: Timestamp,
    #[serde(skip)]
    skill_id: SkillId,
}

impl FromRow for InstalledSkill {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let (state, skill_state): (VersionState, SkillState) = (row.get("state")?, row.get("skill_state")?);
        Ok(Self {
            slug: row.get("slug")?,
            version: row.get("version")?,
            latest: row.get("latest_version")?,
            yanked: state == VersionState::Yanked,
            revoked: matches!(state, VersionState::Revoked | VersionState::Blocked)
                || skill_state == SkillState::Removed,
            installed_at: row.get("installed_at")?,
            skill_id: row.get("skill_id")?,
        })
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Installed {
    installed: Vec<InstalledSkill>,
    next_cursor: Option<String>,
}

async fn installed(db: &db::Db, account: AccountId, below: &Key, most: u32) -> db::Result<Vec<InstalledSkill>> {
    let sql = "SELECT skill.slug, skill.state AS skill_state, skill.latest_version, skill_version.version, skill_version.state,
                      skill_install.installed_at, skill_install.skill_id
               FROM skill_install JOIN skill ON skill.id = skill_install.skill_id
               JOIN skill_version ON skill_version.id = skill_install.version_id
               WHERE skill_install.account_id = $1 AND (skill_install.installed_at, skill_install.skill_id) < ($2, $3)
               ORDER BY skill_install.installed_at DESC, skill_install.skill_id DESC LIMIT $4";
    db.all(sql, params![account, below.at, &below.id, most]).await
}

async fn list_installed(State(janua): State<Janua>, session: Session, page: Page) -> Result<Json<Installed>> {
    let account = session.account().id;
    let fetch = async |below, most| installed(&janua.db, account, &below, most).await;
    let key = |one: &InstalledSkill| Key { at: one.installed_at, id: one.skill_id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "installed-skills", account, fetch, key).await?;
    Ok(Json(Installed { installed: rows, next_cursor }))
}

/// Takes back what a person counts for, before their account goes.
pub async fn forget(tx: &mut Tx, account: AccountId) -> db::Result<()> {
    for sql in [
        "UPDATE skill SET stars = stars - 1, popularity = popularity - 1
         WHERE id IN (SELECT skill_id FROM skill_star WHERE account_id = $1)",
        "UPDATE skill SET installs = installs - 1, popularity = popularity - 3
         WHERE id IN (SELECT skill_id FROM skill_install WHERE account_id = $1)",
        "DELETE FROM skill_star WHERE account_id = $1",
        "DELETE FROM skill_install WHERE account_id = $1",
    ] {
        tx.exec(sql, params![account]).await?;
    }
    Ok(())
}
