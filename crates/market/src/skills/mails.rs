//! The mails about skills: to the admins of the publisher, to platform owners, and to users who installed one.
use db::Tx;
use kernel::Janua;
use tenancy::{
    enter::platform_owners,
    messages::mail::{self, Letter, Mail, Sample},
    orgs,
};

use super::model::Skill;

pub const MAILS: &[Sample] = &[
    Sample(|| Box::new(sample(SkillNews::Waits))),
    Sample(|| Box::new(sample(SkillNews::Reported))),
    Sample(|| Box::new(sample(SkillNews::Approved))),
    Sample(|| Box::new(sample(SkillNews::Blocked))),
    Sample(|| Box::new(sample(SkillNews::Revoked))),
    Sample(|| Box::new(sample(SkillNews::UnderReview))),
    Sample(|| Box::new(sample(SkillNews::Restored))),
    Sample(|| Box::new(sample(SkillNews::Removed))),
    Sample(|| Box::new(sample(SkillNews::InstalledEnded))),
];

fn sample(news: SkillNews) -> SkillMail {
    SkillMail {
        name: "Ada".into(),
        skill: "acme.pdf-tools 1.2.0".into(),
        page: "/marketplace/acme.pdf-tools".into(),
        news,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillNews {
    /// To platform owners: a version waits for a decision.
    Waits,
    /// To platform owners: reports have hidden a skill.
    Reported,
    Approved,
    Blocked,
    Revoked,
    UnderReview,
    Restored,
    Removed,
    /// To users who installed it.
    InstalledEnded,
}

pub struct SkillMail {
    pub name: String,
    /// The slug, and the version where it is about one.
    pub skill: String,
    pub page: String,
    pub news: SkillNews,
}

impl Mail for SkillMail {
    fn name(&self) -> &'static str {
        match self.news {
            SkillNews::Waits => "skill_waits",
            SkillNews::Reported => "skill_reported",
            SkillNews::Approved => "skill_approved",
            SkillNews::Blocked => "skill_blocked",
            SkillNews::Revoked => "skill_revoked",
            SkillNews::UnderReview => "skill_under_review",
            SkillNews::Restored => "skill_restored",
            SkillNews::Removed => "skill_removed",
            SkillNews::InstalledEnded => "installed_skill_revoked",
        }
    }

    fn letter(&self) -> Letter {
        let letter = match self.news {
            SkillNews::Waits => Letter::new(
                "A skill waits for review",
                "The scan of {} found something that a platform owner has to look at. This version cannot be installed until then.",
                "Approve or block it in the review queue.",
            ),
            SkillNews::Reported => Letter::new(
                "A skill was reported",
                "Several users reported {}. It is hidden from the marketplace until a platform owner decides.",
                "Look at the reports in the review queue.",
            ),
            SkillNews::Approved => Letter::new(
                "Your skill is published",
                "A platform owner approved {}. Every user who may see the skill can install this version now.",
                "Users who installed an earlier version see that an update is available.",
            ),
            SkillNews::Blocked => Letter::new(
                "Your skill was blocked",
                "The skill {} was blocked. This version cannot be installed.",
                "The skill's page shows what was found. Correct it, and publish a new version.",
            ),
            SkillNews::Revoked => Letter::new(
                "A version of your skill was revoked",
                "A platform owner revoked {}. It can no longer be downloaded, and users who installed it are told.",
                "Correct the problem, and publish a new version.",
            ),
            SkillNews::UnderReview => Letter::new(
                "Your skill is under review",
                "Several users reported {}. It is hidden from the marketplace until a platform owner has looked at it.",
                "You do not have to do anything. We write to you when it is decided.",
            ),
            SkillNews::Restored => Letter::new(
                "Your skill is back",
                "A platform owner looked at the reports about {} and dismissed them. The skill is shown again.",
                "You do not have to do anything.",
            ),
            SkillNews::Removed => Letter::new(
                "Your skill was removed",
                "A platform owner looked at the reports about {} and removed the skill. Users who installed it are told.",
                "If you think that this is a mistake, contact the people who run this service.",
            ),
            SkillNews::InstalledEnded => Letter::new(
                "Uninstall a skill",
                "The skill {} was withdrawn because it may be harmful. You installed it.",
                "Remove it from your agents, and check what they did with it.",
            ),
        };
        letter.with(&[&self.skill]).to(&self.name).button("Open skill", self.page.as_str())
    }
}

/// The slug, and the version of it.
pub fn titled(skill: &Skill, version: Option<&str>) -> String {
    version.map_or_else(|| skill.slug.clone(), |version| format!("{} {version}", skill.slug))
}

/// Writes to the admins of the publisher.
pub async fn tell_publisher(
    tx: &mut Tx,
    janua: &Janua,
    skill: &Skill,
    version: Option<&str>,
    news: SkillNews,
) -> db::Result<()> {
    let Some(org) = skill.org_id else { return Ok(()) };
    let (title, page) = (titled(skill, version), format!("/console/orgs/{org}/skills/{}", skill.slug));
    for reader in orgs::admins_to_mail(tx, org).await? {
        let mail = SkillMail { name: reader.name, skill: title.clone(), page: page.clone(), news };
        mail::send(tx, janua, &reader.email, &mail).await?;
    }
    Ok(())
}

/// Writes to the platform owners.
pub async fn tell_platform(
    tx: &mut Tx,
    janua: &Janua,
    skill: &Skill,
    version: Option<&str>,
    news: SkillNews,
) -> db::Result<()> {
    for owner in platform_owners(tx, janua).await? {
        let Some(email) = owner.email.filter(|_| owner.email_verified) else { continue };
        let mail = SkillMail {
            name: owner.name,
            skill: titled(skill, version),
            page: "/console/platform/skills".into(),
            news,
        };
        mail::send(tx, janua, &email, &mail).await?;
    }
    Ok(())
}
