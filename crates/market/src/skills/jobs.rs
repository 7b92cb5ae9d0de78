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
    publish::{LOOK_ALIKE, examine, is_proven},
    ratings,
    review::withdraw,
    scan::{Scan, Verdict},
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
/// How many are tried where some cannot be scanned at the moment.
const MOST_TRIED: usize = 200;

impl Job for Rescan {
    const KIND: &'static str = "rescan_skills";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let (mut after, mut done, mut tried, mut failed) = ((-1, String::new()), 0, 0, None);
        while done < VERSIONS && tried < MOST_TRIED {
            let some = Version::outdated(&janua.db, (after.0, &after.1), VERSIONS - done).await?;
            let Some(last) = some.last() else { break };
            after = (last.engine, last.id.to_string());
            for version in some {
                tried += 1;
                match rescan(&janua, &version).await {
                    Ok(()) => done += 1,
                    // The others do not wait for it.
                    Err(fault) => {
                        tracing::warn!(version = %version.id, code = fault.code().name, "a skill cannot be scanned again");
                        failed = Some(fault);
                    }
                }
            }
        }
        failed.map_or(Ok(()), |fault| Err(Later::retry(fault)))
    }
}

/// What a package holds for the scan: the verdict on one that is missing or can no longer be read is a person's.
async fn look_again(janua: &Janua, version: &Version) -> Result<Scan> {
    let unreadable = |message: &str| {
        let mut scan = Scan { verdict: Verdict::Allow, findings: vec![] };
        scan.add("package_unreadable", Verdict::Review, None, message);
        scan
    };
    let bytes = match ObjectKey::parse(&version.object) {
        Some(key) => janua.objects.read(&key, LARGEST_PACKAGE as u64).await?,
        None => None,
    };
    let Some(bytes) = bytes else { return Ok(unreadable("The package is missing from the store.")) };
    match examine(janua, bytes.into()).await {
        Ok((_, scan)) => Ok(scan),
        Err(fault) if fault.code().status < 500 => Ok(unreadable("The package cannot be read.")),
        Err(fault) => Err(fault),
    }
}

/// Scans one version again.
pub async fn rescan(janua: &Janua, version: &Version) -> Result<()> {
    let mut scan = look_again(janua, version).await?;
    // The name is compared with others when a version is published, and a person may not have decided yet.
    for finding in version.findings.iter().filter(|finding| finding.code == LOOK_ALIKE) {
        scan.add(LOOK_ALIKE, finding.verdict, finding.path.as_deref(), &finding.message);
    }
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
