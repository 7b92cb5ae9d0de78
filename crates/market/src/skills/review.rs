//! The queue of platform owners: versions that a scan put aside, and skills that users reported.
use std::collections::{BTreeSet, HashMap};

use axum::extract::State;
use db::{Db, Tx, params};
use kernel::{
    Janua,
    fault::{Code, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Routes, Scope},
    jobs, transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::PlatformOwner,
    events::{self, About, By},
};

use super::{
    api::VersionPath,
    events::{SkillBlocked, SkillPublished, SkillRemoved, SkillRestored, SkillRevoked},
    jobs::TellInstalled,
    mails::{SkillNews, tell_publisher},
    model::{Skill, SkillId, SkillState, Version, VersionId, VersionState, words},
    publish::{SkillPath, make_public},
    reports::Report,
    view::{SkillView, Standing, VersionView},
};
use db::{FromValue, Value as Stored};

const DECIDED: Code = Code::new(409, "already_decided", "This is decided already, or cannot be decided in this way.");

pub fn routes() -> Routes {
    Routes::new("skills")
        .get("/admin/skills/versions", list_waiting, "versions of skills that wait for a platform owner")
        .post("/admin/skills/{slug}/versions/{version}", decide_version, "approve, block or revoke a version")
        .fails(&[NOT_FOUND, DECIDED])
        .get("/admin/skills/reported", list_reported, "skills that are hidden after reports")
        .post("/admin/skills/{slug}/reports", decide_reports, "dismiss the reports about a skill, or remove it")
        .fails(&[NOT_FOUND, DECIDED])
}

#[derive(Serialize, JsonSchema)]
struct WaitingVersion {
    skill: SkillView,
    version: VersionView,
    /// The text of SKILL.md as safe HTML.
    readme: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WaitingVersions {
    versions: Vec<WaitingVersion>,
    next_cursor: Option<String>,
}

async fn list_waiting(State(janua): State<Janua>, _: PlatformOwner, page: Page) -> Result<Json<WaitingVersions>> {
    let fetch = async |below, most| Version::waiting(&janua.db, &below, most).await;
    let Listed { rows, next_cursor } =
        page.list(&janua, "waiting-skills", Scope::platform(), fetch, Version::key).await?;
    let (skills, ids): (BTreeSet<SkillId>, Vec<VersionId>) =
        rows.iter().map(|version| (version.skill_id, version.id)).unzip();
    let skills = Skill::by_ids(&janua.db, &skills.into_iter().collect::<Vec<_>>()).await?;
    let skills: HashMap<SkillId, Skill> = skills.into_iter().map(|skill| (skill.id, skill)).collect();
    let mut readmes = Version::readmes(&janua.db, &ids).await?;
    let versions = rows.iter().filter_map(|version| {
        Some(WaitingVersion {
            skill: SkillView::of(skills.get(&version.skill_id)?),
            version: VersionView::of(version, Standing::Member),
            readme: readmes.remove(&version.id).unwrap_or_default(),
        })
    });
    let versions = versions.collect();
    Ok(Json(WaitingVersions { versions, next_cursor }))
}

words! {
    VersionDecision {
        Approve = "approve",
        Block = "block",
        /// Withdraws a published version. It is never offered again.
        Revoke = "revoke",
    }
}

#[derive(Deserialize, JsonSchema)]
struct DecideVersion {
    decision: VersionDecision,
    /// Shown to the publisher and to users.
    #[schemars(length(max = 500))]
    reason: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct DecidedVersion {
    skill: SkillView,
    version: VersionView,
}

async fn decide_version(
    State(janua): State<Janua>,
    owner: PlatformOwner,
    Path(VersionPath { slug, version }): Path<VersionPath>,
    Json(wanted): Json<DecideVersion>,
) -> Result<Json<DecidedVersion>> {
    let skill = Skill::find(&janua.db, &slug).await?.ok_or(NOT_FOUND)?;
    let reason = wanted.reason.map(|reason| reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    let by = owner.0.by();
    let id = transact!(janua, async |tx| {
        let skill = Skill::hold(tx, skill.id).await?.ok_or(NOT_FOUND)?;
        let version = Version::find(&mut *tx, skill.id, &version).await?.ok_or(NOT_FOUND)?;
        match wanted.decision {
            VersionDecision::Approve => approve(tx, &janua, &by, &skill, &version).await?,
            VersionDecision::Block if version.state == VersionState::InReview => {
                withdraw(tx, &janua, &by, &skill, &version, VersionState::Blocked, reason.clone()).await?;
            }
            VersionDecision::Revoke if matches!(version.state, VersionState::Published | VersionState::Yanked) => {
                withdraw(tx, &janua, &by, &skill, &version, VersionState::Revoked, reason.clone()).await?;
            }
            VersionDecision::Block | VersionDecision::Revoke => return Err(DECIDED.into()),
        }
        Ok(version.id)
    })?;
    let version = Version::by_id(&janua.db, id).await?.ok_or(NOT_FOUND)?;
    let skill = Skill::by_id(&janua.db, skill.id).await?.ok_or(NOT_FOUND)?;
    Ok(Json(DecidedVersion { skill: SkillView::of(&skill), version: VersionView::of(&version, Standing::Member) }))
}

async fn approve(tx: &mut Tx, janua: &Janua, by: &By, skill: &Skill, version: &Version) -> Result<()> {
    if version.published_at.is_some() && version.state == VersionState::InReview {
        // A rescan put it aside: it goes back as it was signed.
        Version::set_state(tx, version.id, VersionState::InReview, VersionState::Published, None).await?;
        Skill::settle(tx, skill.id, None).await?;
    } else if !make_public(tx, janua, skill, version.id).await? {
        return Err(DECIDED.into());
    }
    let (slug, digest) = (skill.slug.clone(), version.digest.clone());
    let event = SkillPublished { slug, version: version.version.clone(), digest };
    events::record(tx, janua, by, about(skill), &event).await?;
    Ok(tell_publisher(tx, janua, skill, Some(&version.version), SkillNews::Approved).await?)
}

fn about(skill: &Skill) -> About {
    skill.org_id.map(About::in_org).unwrap_or_default()
}

/// Blocks or revokes a version. The publisher hears of it and, if it was offered before, everybody who installed it.
pub async fn withdraw(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    skill: &Skill,
    version: &Version,
    to: VersionState,
    reason: Option<String>,
) -> Result<()> {
    if !Version::set_state(tx, version.id, version.state, to, reason.as_deref()).await? {
        return Err(DECIDED.into());
    }
    Skill::settle(tx, skill.id, None).await?;
    let (slug, number) = (skill.slug.clone(), version.version.clone());
    if to == VersionState::Revoked {
        events::record(tx, janua, by, about(skill), &SkillRevoked { slug, version: number, reason }).await?;
    } else {
        events::record(tx, janua, by, about(skill), &SkillBlocked { slug, version: number, reason }).await?;
    }
    let news = if to == VersionState::Revoked { SkillNews::Revoked } else { SkillNews::Blocked };
    tell_publisher(tx, janua, skill, Some(&version.version), news).await?;
    if version.published_at.is_some() {
        let job = TellInstalled { skill: skill.id, version: Some(version.id) };
        jobs::enqueue(tx, janua, janua.clock.now(), &job).await?;
    }
    Ok(())
}

#[derive(Serialize, JsonSchema)]
struct ReportedSkill {
    skill: SkillView,
    reports: Vec<Report>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReportedSkills {
    skills: Vec<ReportedSkill>,
    next_cursor: Option<String>,
}

async fn reported(db: &Db, below: &Key, most: u32) -> db::Result<Vec<Skill>> {
    let sql = "SELECT skill.*, org.name AS org_name, skill.updated_at AS place
               FROM skill LEFT JOIN org ON org.id = skill.org_id
               WHERE skill.state = 'under_review' AND (skill.updated_at, skill.id) < ($1, $2)
               ORDER BY skill.updated_at DESC, skill.id DESC LIMIT $3";
    db.all(sql, params![below.at, &below.id, most]).await
}

async fn list_reported(State(janua): State<Janua>, _: PlatformOwner, page: Page) -> Result<Json<ReportedSkills>> {
    let fetch = async |below, most| reported(&janua.db, &below, most).await;
    let Listed { rows, next_cursor } =
        page.list(&janua, "reported-skills", Scope::platform(), fetch, Skill::key).await?;
    let mut reports = Report::open(&janua.db, &rows.iter().map(|skill| skill.id).collect::<Vec<_>>()).await?;
    let skills = rows.iter().map(|skill| ReportedSkill {
        skill: SkillView::of(skill),
        reports: reports.remove(&skill.id).unwrap_or_default(),
    });
    let skills = skills.collect();
    Ok(Json(ReportedSkills { skills, next_cursor }))
}

words! {
    ReportDecision {
        /// The skill is shown again, and the reports count as dismissed.
        Dismiss = "dismiss",
        /// The skill is withdrawn with all its versions.
        Remove = "remove",
    }
}

#[derive(Deserialize, JsonSchema)]
struct DecideReports {
    decision: ReportDecision,
    #[schemars(length(max = 500))]
    reason: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct DecidedSkill {
    skill: SkillView,
}

async fn decide_reports(
    State(janua): State<Janua>,
    owner: PlatformOwner,
    Path(SkillPath { slug }): Path<SkillPath>,
    Json(wanted): Json<DecideReports>,
) -> Result<Json<DecidedSkill>> {
    let skill = Skill::find(&janua.db, &slug).await?.ok_or(NOT_FOUND)?;
    let (by, now) = (owner.0.by(), janua.clock.now());
    transact!(janua, async |tx| {
        let skill = Skill::hold(tx, skill.id).await?.ok_or(NOT_FOUND)?;
        match wanted.decision {
            ReportDecision::Dismiss => {
                if skill.state == SkillState::Removed {
                    return Err(DECIDED.into());
                }
                Report::decide(tx, skill.id, "dismissed", now).await?;
                if Skill::set_state(tx, skill.id, SkillState::Active).await? {
                    Skill::settle(tx, skill.id, None).await?;
                    events::record(tx, &janua, &by, about(&skill), &SkillRestored { slug: skill.slug.clone() })
                        .await?;
                    tell_publisher(tx, &janua, &skill, None, SkillNews::Restored).await?;
                }
            }
            ReportDecision::Remove => {
                Report::decide(tx, skill.id, "upheld", now).await?;
                remove(tx, &janua, &by, &skill, wanted.reason.clone()).await?;
            }
        }
        Ok(())
    })?;
    let skill = Skill::by_id(&janua.db, skill.id).await?.ok_or(NOT_FOUND)?;
    Ok(Json(DecidedSkill { skill: SkillView::of(&skill) }))
}

async fn remove(tx: &mut Tx, janua: &Janua, by: &By, skill: &Skill, reason: Option<String>) -> Result<()> {
    if !Skill::set_state(tx, skill.id, SkillState::Removed).await? {
        return Err(DECIDED.into());
    }
    Skill::settle(tx, skill.id, None).await?;
    events::record(tx, janua, by, about(skill), &SkillRemoved { slug: skill.slug.clone(), reason }).await?;
    tell_publisher(tx, janua, skill, None, SkillNews::Removed).await?;
    let id: SkillId = skill.id;
    Ok(jobs::enqueue(tx, janua, janua.clock.now(), &TellInstalled { skill: id, version: None }).await?)
}
