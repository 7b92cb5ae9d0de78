//! What happens to skills, for the audit log and webhooks.
tenancy::events! {
    /// A version of a skill was published.
    SkillPublished { slug: String, version: String, digest: String } = "SKILL_PUBLISHED";
    /// A version of a skill waits for a platform owner to look at it.
    SkillReviewRequested { slug: String, version: String, findings: Vec<String> } = "SKILL_REVIEW_REQUESTED";
    /// A version of a skill was blocked.
    SkillBlocked { slug: String, version: String, reason: Option<String> } = "SKILL_BLOCKED";
    /// A version of a skill was yanked: it is no longer offered.
    SkillYanked { slug: String, version: String, reason: Option<String> } = "SKILL_YANKED";
    /// A yanked version of a skill is offered again.
    SkillUnyanked { slug: String, version: String } = "SKILL_UNYANKED";
    /// A version of a skill was revoked. Users who installed it have this event, too.
    SkillRevoked { slug: String, version: String, reason: Option<String> } = "SKILL_REVOKED";
    /// A skill was hidden after reports, until a platform owner has looked at it.
    SkillUnderReview { slug: String } = "SKILL_UNDER_REVIEW";
    /// The reports about a skill were dismissed, and it is shown again.
    SkillRestored { slug: String } = "SKILL_RESTORED";
    /// A skill was removed. Users who installed it have this event, too.
    SkillRemoved { slug: String, reason: Option<String> } = "SKILL_REMOVED";
    /// The visibility of a skill was changed.
    SkillVisibilityChanged { slug: String, visibility: String } = "SKILL_VISIBILITY_CHANGED";
    /// A skill was installed.
    SkillInstalled { slug: String, version: String } = "SKILL_INSTALLED";
    /// A skill was uninstalled.
    SkillUninstalled { slug: String } = "SKILL_UNINSTALLED";
    /// A skill was starred.
    SkillStarred { slug: String } = "SKILL_STARRED";
    /// The star of a skill was taken back.
    SkillUnstarred { slug: String } = "SKILL_UNSTARRED";
    /// A skill was reported.
    SkillReported { slug: String, reason: String } = "SKILL_REPORTED";
    /// A skill was rated.
    SkillRated { slug: String, stars: i64 } = "SKILL_RATED";
}
