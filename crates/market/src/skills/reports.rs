//! Reports about skills. Enough of them, from people who do not belong together, hide a skill until a platform owner decides.
//! Reporters are shown to nobody.
use std::{collections::HashMap, time::Duration};

use axum::{extract::State, http::StatusCode};
use db::{Composed, Db, FromRow, FromValue, Row, Tx, Value as Stored, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{NOT_FOUND, Result},
    http::{Json, Path, Routes, network_of},
    id::Id,
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::AccountId,
    enter::Session,
    events::{self, About, By},
    orgs::Membership,
};

use super::{
    events::{SkillReported, SkillUnderReview},
    mails::{SkillNews, tell_platform, tell_publisher},
    model::{Skill, SkillId, SkillState, words},
    publish::SkillPath,
    view::{REVOKED, reach},
};

/// Accounts that are younger count for nothing.
const GROWN_UP: Duration = Duration::from_hours(7 * 24);
/// So many reports hide a skill, and so many a well-known one of a proven domain.
const ENOUGH: i64 = 3;
const ENOUGH_FOR_WELL_KNOWN: i64 = 9;
const WELL_KNOWN: i64 = 1000;
/// Whoever had so many dismissed in so long counts for nothing.
const DISMISSED: i64 = 3;
const REMEMBERED: Duration = Duration::from_hours(30 * 24);

pub fn routes() -> Routes {
    Routes::new("skills")
        .post("/skills/{slug}/report", report_skill, "report a skill for review")
        .answers::<Reported>(202, "application/json")
        .fails(&[NOT_FOUND, REVOKED])
}

words! {
    /// Why a skill is reported.
    Reason {
        Malware = "malware",
        PromptInjection = "prompt_injection",
        Impersonation = "impersonation",
        License = "license",
        Spam = "spam",
        Other = "other",
    }
}

#[derive(Deserialize, JsonSchema)]
struct NewReport {
    reason: Reason,
    #[schemars(length(max = 2000))]
    detail: Option<String>,
    #[schemars(length(max = 64))]
    version: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Reported {
    reported: bool,
}

pub type ReportId = Id<Report>;

/// A report as platform owners see it: without its sender.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub id: ReportId,
    pub reason: Reason,
    pub detail: Option<String>,
    pub version: Option<String>,
    /// Whether it counts towards the number that hides a skill.
    pub counts: bool,
    pub created_at: Timestamp,
}
row!(Report { id, reason, detail, version, counts, created_at });

/// A report with the skill that it is about.
struct AboutSkill {
    skill_id: SkillId,
    report: Report,
}
impl FromRow for AboutSkill {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self { skill_id: row.get("skill_id")?, report: Report::from_row(row)? })
    }
}

impl Report {
    /// The newest open reports about each of these skills, a hundred at the most.
    pub async fn open(db: &Db, skills: &[SkillId]) -> db::Result<HashMap<SkillId, Vec<Self>>> {
        let mut reports: HashMap<SkillId, Vec<Self>> = HashMap::new();
        if skills.is_empty() {
            return Ok(reports);
        }
        let mut question = Composed::new(
            "SELECT skill_id, id, reason, detail, version, counts, created_at FROM (
                 SELECT skill_report.*,
                        ROW_NUMBER() OVER (PARTITION BY skill_id ORDER BY created_at DESC, id DESC) AS number
                 FROM skill_report WHERE state = 'open' AND skill_id IN (",
        );
        question
            .values(skills.iter().copied())
            .sql(")) AS newest WHERE number <= 100 ORDER BY created_at DESC, id DESC");
        for AboutSkill { skill_id, report } in db.find(question).await? {
            reports.entry(skill_id).or_default().push(report);
        }
        Ok(reports)
    }

    /// Ends all open reports about a skill.
    pub async fn decide(tx: &mut Tx, skill: SkillId, state: &str, now: Timestamp) -> db::Result<()> {
        let sql = "UPDATE skill_report SET state = $2, decided_at = $3 WHERE skill_id = $1 AND state = 'open'";
        tx.exec(sql, params![skill, state, now]).await.map(drop)
    }
}

async fn report_skill(
    State(janua): State<Janua>,
    session: Session,
    Path(SkillPath { slug }): Path<SkillPath>,
    Json(new): Json<NewReport>,
) -> Result<(StatusCode, Json<Reported>)> {
    let (skill, _) = reach(&janua, Some(&session), &slug).await?;
    let (account, now) = (session.account(), janua.clock.now());
    let orgs = Membership::all_of(&janua.db, account.id).await?;
    let is_own = orgs.iter().any(|membership| Some(membership.org.id) == skill.org_id);
    // A person without an organization stands for themselves.
    let org_key = orgs.first().map_or_else(|| account.id.to_string(), |membership| membership.org.id.to_string());
    let network =
        session.by().ip.and_then(|ip| ip.parse().ok()).map(|ip| network_of(ip).to_string()).unwrap_or_default();
    let network_key = janua.vault.mac("skill-report", network.as_bytes());
    let is_grown_up = account.email_verified && now.since(account.created_at) >= GROWN_UP;
    transact!(janua, async |tx| {
        let skill = Skill::hold(tx, skill.id).await?.ok_or(NOT_FOUND)?;
        let counts = is_grown_up
            && !is_own
            && dismissed(tx, account.id, now).await? < DISMISSED
            && !was_dismissed(tx, skill.id, account.id, now).await?;
        // A second one while the first is open changes nothing.
        let sql = "INSERT INTO skill_report (id, skill_id, account_id, version, reason, detail, counts, org_key, network_key,
                                             state, created_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'open', $10)
                   ON CONFLICT (skill_id, account_id) DO UPDATE SET version = $4, reason = $5, detail = $6, counts = $7,
                       org_key = $8, network_key = $9, state = 'open', created_at = $10, decided_at = NULL
                   WHERE skill_report.state <> 'open'";
        let id = ReportId::new(&janua.entropy, now);
        let made = tx
            .exec(
                sql,
                params![
                    id,
                    skill.id,
                    account.id,
                    new.version.clone(),
                    new.reason,
                    new.detail.clone(),
                    counts,
                    &org_key,
                    &network_key,
                    now
                ],
            )
            .await?;
        if made == 0 {
            return Ok(());
        }
        // In the reporter's own log alone.
        let event = SkillReported { slug: skill.slug.clone(), reason: new.reason.name().into() };
        session.record(tx, &janua, &event).await?;
        hide_if_enough(tx, &janua, &skill).await
    })?;
    Ok((StatusCode::ACCEPTED, Json(Reported { reported: true })))
}

/// How many reports of a person were dismissed lately.
async fn dismissed(tx: &mut Tx, account: AccountId, now: Timestamp) -> db::Result<i64> {
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM skill_report
               WHERE account_id = $1 AND state = 'dismissed' AND decided_at > $2";
    let (count,): (i64,) = tx.one(sql, params![account, now.minus(REMEMBERED)]).await?;
    Ok(count)
}

/// Whether a person's report about this skill was dismissed lately. The same people do not hide a skill again and again.
async fn was_dismissed(tx: &mut Tx, skill: SkillId, account: AccountId, now: Timestamp) -> db::Result<bool> {
    let sql = "SELECT id FROM skill_report
               WHERE skill_id = $1 AND account_id = $2 AND state = 'dismissed' AND decided_at > $3";
    let found: Option<(ReportId,)> = tx.opt(sql, params![skill, account, now.minus(REMEMBERED)]).await?;
    Ok(found.is_some())
}

struct Voices {
    people: i64,
    orgs: i64,
    networks: i64,
}
row!(Voices { people, orgs, networks });

async fn hide_if_enough(tx: &mut Tx, janua: &Janua, skill: &Skill) -> Result<()> {
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS people, CAST(COUNT(DISTINCT org_key) AS BIGINT) AS orgs,
                      CAST(COUNT(DISTINCT network_key) AS BIGINT) AS networks
               FROM skill_report WHERE skill_id = $1 AND state = 'open' AND counts";
    let voices: Voices = tx.one(sql, params![skill.id]).await?;
    let is_well_known = skill.is_verified && skill.installs >= WELL_KNOWN;
    let enough = if is_well_known { ENOUGH_FOR_WELL_KNOWN } else { ENOUGH };
    let is_enough = voices.people.min(voices.orgs).min(voices.networks) >= enough;
    if !is_enough || skill.state != SkillState::Active {
        return Ok(());
    }
    Skill::set_state(tx, skill.id, SkillState::UnderReview).await?;
    Skill::settle(tx, skill.id, None).await?;
    let about = skill.org_id.map(About::in_org).unwrap_or_default();
    // Nobody is named: the last reporter is no more its cause than the first.
    events::record(tx, janua, &By::default(), about, &SkillUnderReview { slug: skill.slug.clone() }).await?;
    tell_publisher(tx, janua, skill, None, SkillNews::UnderReview).await?;
    tell_platform(tx, janua, skill, None, SkillNews::Reported).await?;
    Ok(())
}
