//! What is shown of skills, and to whom.
use axum::http::{HeaderMap, HeaderValue, header};
use data_encoding::{BASE64, HEXLOWER};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, NOT_FOUND, Result},
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{
    accounts::AccountId,
    enter::{Session, is_platform_owner},
    orgs::{Membership, Role},
};

use super::{
    model::{Skill, SkillState, Version, VersionState, Visibility},
    package::{FileView, PackedFile},
    scan::{Finding, Verdict},
};

pub const REVOKED: Code = Code::new(410, "revoked", "This skill or version was withdrawn. Uninstall it.");
pub const UNDER_REVIEW: Code =
    Code::new(409, "under_review", "This skill or version is under review. Try again when that is over.");

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Publisher {
    /// None when the organization is gone.
    pub org_name: Option<String>,
    pub domain: Option<String>,
    /// Whether the domain is proven.
    pub verified: bool,
}

#[derive(Serialize, JsonSchema)]
pub struct RatingSummary {
    /// None without a rating.
    pub average: Option<f64>,
    pub count: i64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillView {
    /// Such as `acme.pdf-tools`.
    pub slug: String,
    pub namespace: String,
    pub name: String,
    pub description: String,
    pub license: Option<String>,
    pub tags: Vec<String>,
    pub visibility: Visibility,
    pub publisher: Publisher,
    /// None while nothing is published.
    pub latest_version: Option<String>,
    pub stars: i64,
    pub installs: i64,
    pub downloads: i64,
    pub rating: RatingSummary,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub state: SkillState,
}

/// The average of ratings, and how many there are.
#[expect(clippy::cast_precision_loss, reason = "nobody rates a skill quadrillions of times")]
pub fn average(ratings: &[i64; 5]) -> (Option<f64>, i64) {
    let count: i64 = ratings.iter().sum();
    let sum: i64 = ratings.iter().zip(1..).map(|(count, stars)| count * stars).sum();
    let average = (count > 0).then(|| (sum as f64 / count as f64 * 100.0).round() / 100.0);
    (average, count)
}

impl SkillView {
    pub fn of(skill: &Skill) -> Self {
        let (average, count) = average(&skill.ratings);
        Self {
            slug: skill.slug.clone(),
            namespace: skill.namespace.clone(),
            name: skill.name.clone(),
            description: skill.description.clone(),
            license: skill.license.clone(),
            tags: skill.tags.clone(),
            visibility: skill.visibility,
            publisher: Publisher {
                org_name: skill.org_name.clone(),
                domain: skill.domain.clone(),
                verified: skill.is_verified,
            },
            latest_version: skill.latest_version.clone(),
            stars: skill.stars,
            installs: skill.installs,
            downloads: skill.downloads,
            rating: RatingSummary { average, count },
            created_at: skill.created_at,
            updated_at: skill.updated_at,
            state: skill.state,
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub struct ScanView {
    pub verdict: Verdict,
    /// The number of the set of rules.
    pub engine: i64,
    pub findings: Vec<Finding>,
}

/// A signature by a key of `/.well-known/skills-pubkey`.
#[derive(Serialize, JsonSchema)]
pub struct SignatureView {
    pub kid: String,
    pub algorithm: &'static str,
    /// In base64url.
    pub value: String,
    /// The signed text: JSON in its canonical form (RFC 8785).
    pub manifest: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionView {
    pub version: String,
    /// Of the package: `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    pub size: i64,
    pub files: Vec<FileView>,
    pub scan: ScanView,
    pub state: VersionState,
    /// Why it was yanked, blocked or revoked.
    pub reason: Option<String>,
    pub signature: Option<SignatureView>,
    /// Shown to members of the organization.
    pub published_by: Option<AccountId>,
    pub published_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

impl VersionView {
    pub fn of(version: &Version, standing: Standing) -> Self {
        Self {
            version: version.version.clone(),
            digest: format!("sha256:{}", version.digest),
            size: version.size,
            files: version.files.iter().map(PackedFile::view).collect(),
            scan: ScanView { verdict: version.verdict, engine: version.engine, findings: version.findings.clone() },
            state: version.state,
            reason: version.reason.clone(),
            signature: signature(version),
            published_by: version.published_by.filter(|_| standing != Standing::Stranger),
            published_at: version.published_at,
            created_at: version.created_at,
        }
    }
}

pub fn signature(version: &Version) -> Option<SignatureView> {
    let (kid, value, manifest) = (version.key_id.clone()?, version.signature.clone()?, version.manifest.clone()?);
    Some(SignatureView { kid, algorithm: "Ed25519", value, manifest })
}

/// How a caller stands to the organization of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    Stranger,
    Member,
    Admin,
}

impl Standing {
    /// Platform owners see what members see.
    pub async fn of(janua: &Janua, session: Option<&Session>, skill: &Skill) -> db::Result<Self> {
        let Some(session) = session else { return Ok(Self::Stranger) };
        let membership = match skill.org_id {
            Some(org) => Membership::of(&janua.db, org, session.account().id).await?,
            None => None,
        };
        Ok(match membership.map(|membership| membership.role) {
            Some(Role::Admin | Role::Owner) => Self::Admin,
            Some(Role::Member) => Self::Member,
            None if is_platform_owner(janua, session) => Self::Member,
            None => Self::Stranger,
        })
    }
}

/// A skill that a caller may see. Others are 404, as one that does not exist; a removed one is 410.
pub async fn reach(janua: &Janua, session: Option<&Session>, slug: &str) -> Result<(Skill, Standing)> {
    let skill = Skill::find(&janua.db, slug).await?.ok_or(NOT_FOUND)?;
    let standing = Standing::of(janua, session, &skill).await?;
    let was_published = async || -> Result<bool> {
        if skill.latest_id.is_some() {
            return Ok(true);
        }
        let newest = kernel::http::Key::newest();
        Ok(!Version::page(&janua.db, skill.id, false, &newest, 1).await?.is_empty())
    };
    let is_hidden = skill.visibility == Visibility::Org || !was_published().await?;
    if standing == Standing::Stranger && is_hidden {
        return Err(NOT_FOUND.into());
    }
    if skill.state == SkillState::Removed {
        return Err(REVOKED.into());
    }
    Ok((skill, standing))
}

/// The version that is asked for: the named one, or the latest. Drafts are for the publisher, and what was withdrawn is 410.
pub async fn choose(janua: &Janua, skill: &Skill, standing: Standing, wanted: Option<&str>) -> Result<Version> {
    let version = match (wanted, skill.latest_id) {
        (Some(wanted), _) => Version::find(&janua.db, skill.id, wanted).await?,
        (None, Some(latest)) => Version::by_id(&janua.db, latest).await?,
        (None, None) => {
            let any = Version::page(&janua.db, skill.id, false, &kernel::http::Key::newest(), 1).await?;
            let is_revoked = any.first().is_some_and(|any| any.state == VersionState::Revoked);
            return Err(if is_revoked { REVOKED.into() } else { NOT_FOUND.into() });
        }
    };
    let version = version.ok_or(NOT_FOUND)?;
    match version.state {
        VersionState::Published | VersionState::Yanked => Ok(version),
        VersionState::Revoked => Err(REVOKED.into()),
        VersionState::InReview if standing == Standing::Stranger => Err(NOT_FOUND.into()),
        VersionState::InReview => Err(UNDER_REVIEW.into()),
        VersionState::Blocked if version.published_at.is_some() => Err(REVOKED.into()),
        VersionState::Blocked => Err(NOT_FOUND.into()),
    }
}

/// What is said of a package beside its bytes.
pub fn package_headers(skill: &Skill, version: &Version, cache: &'static str) -> HeaderMap {
    let digest = HEXLOWER.decode(version.digest.as_bytes()).map(|bytes| BASE64.encode(&bytes)).unwrap_or_default();
    let signed =
        signature(version).map(|signature| format!("kid={}; alg=ed25519; sig={}", signature.kid, signature.value));
    let name = format!("attachment; filename=\"{}-{}.tar.gz\"", skill.name, version.version.replace('+', "_"));
    let said = [
        (header::CONTENT_TYPE, "application/gzip".to_owned()),
        (header::CONTENT_DISPOSITION, name),
        (header::ETAG, format!("\"{}\"", version.digest)),
        (header::CACHE_CONTROL, cache.to_owned()),
        (header::HeaderName::from_static("digest"), format!("sha-256={digest}")),
        (header::HeaderName::from_static("repr-digest"), format!("sha-256=:{digest}:")),
        (header::HeaderName::from_static("x-skill-version"), version.version.clone()),
        (header::HeaderName::from_static("x-skill-signature"), signed.unwrap_or_default()),
    ];
    said.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::try_from(value).ok()?))).collect()
}
