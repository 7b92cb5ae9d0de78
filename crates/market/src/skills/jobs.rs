//! Work beside requests: telling users what was withdrawn, writing words anew, scanning again, sweeping, keeping scores.
use std::time::Duration;

use db::{Tx, params};
use kernel::{
    Janua,
    fault::Result,
    jobs::{self, Job, Jobs, Later},
    ports::objects::Key as ObjectKey,
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{Account, AccountId},
    events::{self, About, By},
    messages::mail,
};

use super::{
    events::{SkillRemoved, SkillReviewRequested, SkillRevoked},
    keys::{self, TurnSkillKeys},
    mails::{SkillMail, SkillNews, tell_platform, titled},
    model::{Namespace, Skill, SkillId, StoredObject, Version, VersionId, VersionState},
    names::Slug,
    package::LARGEST_PACKAGE,
    publish::{examine, is_proven},
    ratings,
    review::withdraw,
    scan::Verdict,
};

pub fn jobs() -> Jobs {
    Jobs::new()
        .on::<TellInstalled>()
        .on::<Reindex>()
        .every::<Rescan>(Duration::from_mins(10))
        .every::<SweepObjects>(Duration::from_mins(10))
        .every::<KeepScores>(Duration::from_hours(6))
        .every::<TurnSkillKeys>(keys::EVERY)
}

/// How many users are told in one transaction.
const READERS: u32 = 100;

/// Tells users who installed a version that it was withdrawn; all users of the skill where no version is named.
#[derive(Serialize, Deserialize)]
pub struct TellInstalled {
    pub skill: SkillId,
    pub version: Option<VersionId>,
}

impl Job for TellInstalled {
    const KIND: &'static str = "tell_of_withdrawn_skill";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(skill) = Skill::by_id(&janua.db, self.skill).await? else { return Ok(()) };
        let version = match self.version {
            Some(id) => Version::by_id(&janua.db, id).await?,
            None => None,
        };
        let is_over = transact!(janua, async |tx| tell(tx, &janua, &skill, version.as_ref()).await)?;
        if is_over {
            return Ok(());
        }
        // The rest in further jobs, so that none takes long.
        let next = Self { skill: self.skill, version: self.version };
        transact!(janua, async |tx| Ok(jobs::enqueue(tx, &janua, janua.clock.now(), &next).await?))?;
        Ok(())
    }
}

/// Tells some users, each once; answers whether nobody is left.
async fn tell(tx: &mut Tx, janua: &Janua, skill: &Skill, version: Option<&Version>) -> Result<bool> {
    let what = version.map_or_else(|| skill.id.to_string(), |version| version.id.to_string());
    let only = version.map(|version| version.id.to_string()).unwrap_or_default();
    // The statement that finds them also notes that they were told, so a second run finds others.
    let sql = "UPDATE skill_install SET told_of = $2 WHERE skill_id = $1 AND account_id IN
                   (SELECT account_id FROM skill_install WHERE skill_id = $1 AND told_of <> $2 AND ($3 = '' OR version_id = $3)
                    ORDER BY account_id LIMIT $4) RETURNING account_id";
    let readers: Vec<(AccountId,)> = tx.put(sql, params![skill.id, &what, &only, READERS]).await?;
    let is_over = readers.len() < READERS as usize;
    for (reader,) in readers {
        let slug = skill.slug.clone();
        let reason = version.and_then(|version| version.reason.clone());
        let about = About::from(reader);
        match version {
            Some(version) => {
                let event = SkillRevoked { slug, version: version.version.clone(), reason };
                events::record(tx, janua, &By::default(), about, &event).await?;
            }
            None => events::record(tx, janua, &By::default(), about, &SkillRemoved { slug, reason }).await?,
        }
        let Some(account) = Account::find(tx, reader).await?.filter(|account| account.email_verified) else {
            continue;
        };
        let Some(email) = account.email else { continue };
        let mail = SkillMail {
            name: account.name,
            skill: titled(skill, version.map(|version| version.version.as_str())),
            page: format!("/marketplace/{}", skill.slug),
            news: SkillNews::InstalledEnded,
        };
        mail::send(tx, janua, &email, &mail).await?;
    }
    Ok(is_over)
}

/// Writes the words of a skill anew, after it has become much more or less popular.
#[derive(Serialize, Deserialize)]
pub struct Reindex {
    pub skill: SkillId,
}

impl Job for Reindex {
    const KIND: &'static str = "reindex_skill";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        transact!(janua, async |tx| Ok(Skill::settle(tx, self.skill, None).await?))?;
        Ok(())
    }
}

/// Scans versions that an earlier engine looked at. A worse verdict hides a version.
#[derive(Default, Serialize, Deserialize)]
pub struct Rescan {}

const VERSIONS: u32 = 20;

impl Job for Rescan {
    const KIND: &'static str = "rescan_skills";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        for version in Version::outdated(&janua.db, VERSIONS).await? {
            rescan(&janua, &version).await?;
        }
        Ok(())
    }
}

/// Scans one version again.
pub async fn rescan(janua: &Janua, version: &Version) -> Result<()> {
    let key = ObjectKey::parse(&version.object).ok_or(kernel::fault::INTERNAL)?;
    let bytes = janua.objects.read(&key, LARGEST_PACKAGE as u64).await?;
    let bytes = bytes.ok_or_else(|| kernel::fault::INTERNAL.caused_by("the package of a version is missing"))?;
    let (_, scan) = examine(janua, bytes.into()).await?;
    transact!(janua, async |tx| {
        let Some(skill) = Skill::hold(tx, version.skill_id).await? else { return Ok(()) };
        let Some(held) = Version::by_id(&mut *tx, version.id).await? else { return Ok(()) };
        let is_worse = scan.verdict > held.verdict;
        Version::rescanned(tx, held.id, &scan).await?;
        let is_offered = matches!(held.state, VersionState::Published | VersionState::Yanked);
        if !is_worse || !(is_offered || held.state == VersionState::InReview) {
            return Ok(());
        }
        if scan.verdict == Verdict::Block {
            let reason = scan.findings.first().map(|finding| finding.message.clone());
            return withdraw(tx, janua, &By::default(), &skill, &held, VersionState::Blocked, reason).await;
        }
        if held.state == VersionState::Published {
            Version::set_state(tx, held.id, held.state, VersionState::InReview, None).await?;
            Skill::settle(tx, skill.id, None).await?;
            let findings = scan.findings.iter().map(|finding| finding.code.clone()).collect();
            let event = SkillReviewRequested { slug: skill.slug.clone(), version: held.version.clone(), findings };
            let about = skill.org_id.map(About::in_org).unwrap_or_default();
            events::record(tx, janua, &By::default(), about, &event).await?;
            super::mails::tell_publisher(tx, janua, &skill, Some(&held.version), SkillNews::UnderReview).await?;
            tell_platform(tx, janua, &skill, Some(&held.version), SkillNews::Waits).await?;
        }
        Ok(())
    })
}

/// Deletes objects that no version has needed for an hour, and those of skills whose organization is gone.
#[derive(Default, Serialize, Deserialize)]
pub struct SweepObjects {}

const UNUSED_FOR: Duration = Duration::from_hours(1);

impl Job for SweepObjects {
    const KIND: &'static str = "sweep_skill_objects";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        loop {
            let unused = StoredObject::take_unused(&janua.db, janua.clock.now().minus(UNUSED_FOR)).await?;
            if unused.is_empty() {
                return Ok(());
            }
            for object in unused {
                if let Some(key) = ObjectKey::parse(&object) {
                    janua.objects.delete(&key).await.map_err(Later::retry)?;
                }
                StoredObject::forget(&janua.db, &object).await?;
            }
        }
    }
}

/// Keeps the mean of all ratings, the scores, and which domains are proven.
#[derive(Default, Serialize, Deserialize)]
pub struct KeepScores {}

const NAMESPACES: u32 = 200;

impl Job for KeepScores {
    const KIND: &'static str = "keep_skill_scores";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        ratings::renew(&janua).await?;
        let mut after = String::new();
        loop {
            let some = Namespace::domains(&janua.db, &after, NAMESPACES).await?;
            let Some(last) = some.last() else { return Ok(()) };
            after.clone_from(&last.namespace);
            for one in some {
                let Ok(slug) = Slug::of(&one.namespace, "a") else { continue };
                let is_verified = is_proven(&janua, &slug, one.org_id).await?;
                Namespace::set_verified(&janua.db, &one.namespace, is_verified).await?;
            }
        }
    }
}
