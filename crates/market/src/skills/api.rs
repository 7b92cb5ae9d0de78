//! Reading skills: lists and search, one skill, its versions, its package; and what its publisher may change later.
use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{FORBIDDEN, INTERNAL, INVALID, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Query, Routes, Scope},
    ports::objects::Key as ObjectKey,
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::{Browser, InOrg, Member, Session},
    events::About,
};

use super::{
    events::{SkillUnyanked, SkillVisibilityChanged, SkillYanked},
    install,
    model::{Filter, Skill, SkillState, Sort, Version, VersionState, Visibility},
    names::{INVALID_SLUG, Slug},
    package::LARGEST_PACKAGE,
    publish::{SkillPath, hold_admin, reach_own},
    view::{REVOKED, SkillView, Standing, UNDER_REVIEW, VersionView, choose, package_headers, reach},
};

pub fn routes() -> Routes {
    Routes::new("skills")
        .get("/skills", list_skills, "list and search skills of the marketplace")
        .for_any_origin()
        .get("/skills/{slug}", show_skill, "a skill, its latest version and its description")
        .answers::<SkillDetail>(200, "application/json")
        .answers_nothing(308)
        .fails(&[NOT_FOUND, REVOKED, INVALID_SLUG])
        .patch("/skills/{slug}", update_skill, "change the visibility of a skill")
        .fails(&[NOT_FOUND, FORBIDDEN])
        .get("/skills/{slug}/versions", list_versions, "the versions of a skill, newest first")
        .fails(&[NOT_FOUND, REVOKED])
        .patch("/skills/{slug}/versions/{version}", yank_version, "yank a version, or offer it again")
        .fails(&[NOT_FOUND, FORBIDDEN, REVOKED, UNDER_REVIEW])
        .get("/skills/{slug}/download", download_skill, "download the package of a version")
        .answers::<String>(200, "application/gzip")
        .fails(&[NOT_FOUND, REVOKED, UNDER_REVIEW])
        .get("/org/{id}/skills", list_org_skills, "the skills of an organization, newest first")
}

#[derive(Deserialize, JsonSchema)]
struct ListQuery {
    /// Words of the name, the description, the namespace or the tags.
    #[schemars(length(max = 200))]
    query: Option<String>,
    /// Default: `popular`.
    sort: Option<Sort>,
    #[schemars(length(max = 160))]
    namespace: Option<String>,
    #[schemars(length(max = 32))]
    tag: Option<String>,
    /// Only skills of a proven domain.
    verified: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Skills {
    skills: Vec<SkillView>,
    next_cursor: Option<String>,
}

async fn list_skills(State(janua): State<Janua>, Query(query): Query<ListQuery>, page: Page) -> Result<Json<Skills>> {
    let scope = Scope::platform().found_by(&format!(
        "{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
        query.query, query.sort, query.namespace, query.tag, query.verified
    ));
    let filter = Filter {
        query: query.query.filter(|query| !query.trim().is_empty()),
        sort: query.sort,
        namespace: query.namespace.unwrap_or_default(),
        tag: query.tag.unwrap_or_default().to_lowercase(),
        verified: query.verified.unwrap_or(false),
    };
    let fetch = async |below, most| Skill::page(&janua.db, &filter, &below, most).await;
    let Listed { rows, next_cursor } = page.list(&janua, "skills", scope, fetch, Skill::key).await?;
    Ok(Json(Skills { skills: rows.iter().map(SkillView::of).collect(), next_cursor }))
}

async fn list_org_skills(State(janua): State<Janua>, caller: InOrg<Member>, page: Page) -> Result<Json<Skills>> {
    let org = caller.org().id;
    let fetch = async |below, most| Skill::of_org(&janua.db, org, &below, most).await;
    let Listed { rows, next_cursor } = page.list(&janua, "org-skills", org, fetch, Skill::key).await?;
    Ok(Json(Skills { skills: rows.iter().map(SkillView::of).collect(), next_cursor }))
}

/// A version in short.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct VersionLine {
    version: String,
    state: VersionState,
    published_at: Option<Timestamp>,
    created_at: Timestamp,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SkillDetail {
    #[serde(flatten)]
    skill: SkillView,
    /// The text of SKILL.md as safe HTML.
    readme: String,
    /// The latest version; for the publisher, the newest one while nothing is published.
    version: Option<VersionView>,
    /// The newest fifty.
    versions: Vec<VersionLine>,
    /// With a session: whether the user starred it.
    starred: Option<bool>,
    /// With a session: whether the user installed it.
    installed: Option<bool>,
    /// With a session: the version that the user installed.
    installed_version: Option<String>,
    /// With a session: whether the user may publish versions.
    can_publish: Option<bool>,
}

async fn show_skill(
    State(janua): State<Janua>,
    who: Browser,
    Path(SkillPath { slug }): Path<SkillPath>,
) -> Result<Response> {
    let (parsed, session) = (Slug::parse(&slug)?, who.own());
    let found = reach(&janua, session.as_ref(), &slug).await;
    let (skill, standing) = match found {
        Err(fault) if fault.code() == NOT_FOUND => return moved(&janua, session.as_ref(), &parsed).await,
        found => found?,
    };
    let versions = Version::page(&janua.db, skill.id, standing > Standing::Stranger, &Key::newest(), 50).await?;
    let version = match skill.latest_id {
        Some(id) => Version::by_id(&janua.db, id).await?,
        // The newest that is not withdrawn.
        None if standing == Standing::Stranger => {
            let is_there =
                |version: &&Version| matches!(version.state, VersionState::Published | VersionState::Yanked);
            Some(versions.iter().find(is_there).cloned().ok_or(REVOKED)?)
        }
        None => versions.first().cloned(),
    };
    let readme = match &version {
        Some(version) => Version::readme(&janua.db, version.id).await?,
        None => String::new(),
    };
    let line = |version: &Version| VersionLine {
        version: version.version.clone(),
        state: version.state,
        published_at: version.published_at,
        created_at: version.created_at,
    };
    let mine = match &session {
        Some(session) => Some(install::of(&janua, skill.id, session.account().id).await?),
        None => None,
    };
    let detail = SkillDetail {
        readme,
        version: version.as_ref().map(|version| VersionView::of(version, standing)),
        versions: versions.iter().map(line).collect(),
        starred: mine.as_ref().map(|mine| mine.starred),
        installed: mine.as_ref().map(|mine| mine.version.is_some()),
        installed_version: mine.and_then(|mine| mine.version),
        can_publish: session.as_ref().map(|_| standing == Standing::Admin),
        skill: SkillView::of(&skill),
    };
    Ok(Json(detail).into_response())
}

/// Skills keep the slug they were signed with. Under the present slug of their organization they are found, too.
async fn moved(janua: &Janua, session: Option<&Session>, slug: &Slug) -> Result<Response> {
    if slug.namespace.is_empty() || slug.namespace.contains('.') {
        return Err(NOT_FOUND.into());
    }
    let skill = Skill::renamed(&janua.db, &slug.namespace, &slug.name).await?.ok_or(NOT_FOUND)?;
    let (skill, _) = reach(janua, session, &skill.slug).await?;
    if skill.slug == slug.to_string() {
        return Err(NOT_FOUND.into());
    }
    let to = HeaderValue::try_from(format!("/skills/{}", skill.slug)).map_err(|error| INTERNAL.caused_by(error))?;
    Ok((StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, to)]).into_response())
}

#[derive(Deserialize, JsonSchema)]
struct SkillPatch {
    visibility: Visibility,
}

#[derive(Serialize, JsonSchema)]
struct SkillAnswer {
    skill: SkillView,
}

async fn update_skill(
    State(janua): State<Janua>,
    session: Session,
    Path(SkillPath { slug }): Path<SkillPath>,
    Json(patch): Json<SkillPatch>,
) -> Result<Json<SkillAnswer>> {
    let skill = reach_own(&janua, &session, &slug).await?;
    let org = skill.org_id.ok_or(NOT_FOUND)?;
    transact!(janua, async |tx| {
        hold_admin(tx, &session, org).await?;
        let held = Skill::hold(tx, skill.id).await?.ok_or(NOT_FOUND)?;
        if held.visibility == patch.visibility {
            return Ok(());
        }
        Skill::set_visibility(tx, held.id, patch.visibility).await?;
        Skill::settle(tx, held.id, None).await?;
        let event = SkillVisibilityChanged { slug: held.slug, visibility: patch.visibility.name().into() };
        Ok(session.record_about(tx, &janua, About::in_org(org), &event).await?)
    })?;
    let skill = Skill::by_id(&janua.db, skill.id).await?.ok_or(NOT_FOUND)?;
    Ok(Json(SkillAnswer { skill: SkillView::of(&skill) }))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Versions {
    versions: Vec<VersionView>,
    next_cursor: Option<String>,
}

async fn list_versions(
    State(janua): State<Janua>,
    session: Session,
    Path(SkillPath { slug }): Path<SkillPath>,
    page: Page,
) -> Result<Json<Versions>> {
    let (skill, standing) = reach(&janua, Some(&session), &slug).await?;
    let all = standing > Standing::Stranger;
    let fetch = async |below, most| Version::page(&janua.db, skill.id, all, &below, most).await;
    let Listed { rows, next_cursor } = page.list(&janua, "skill-versions", skill.id, fetch, Version::key).await?;
    let versions = rows.iter().map(|version| VersionView::of(version, standing)).collect();
    Ok(Json(Versions { versions, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
pub struct VersionPath {
    pub slug: String,
    pub version: String,
}

#[derive(Deserialize, JsonSchema)]
struct VersionPatch {
    yanked: bool,
    #[schemars(length(max = 500))]
    reason: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct VersionAnswer {
    version: VersionView,
}

async fn yank_version(
    State(janua): State<Janua>,
    session: Session,
    Path(VersionPath { slug, version }): Path<VersionPath>,
    Json(patch): Json<VersionPatch>,
) -> Result<Json<VersionAnswer>> {
    let skill = reach_own(&janua, &session, &slug).await?;
    let org = skill.org_id.ok_or(NOT_FOUND)?;
    let changed = transact!(janua, async |tx| {
        hold_admin(tx, &session, org).await?;
        Skill::hold(tx, skill.id).await?;
        let held = Version::find(&mut *tx, skill.id, &version).await?.ok_or(NOT_FOUND)?;
        let (slug, version) = (skill.slug.clone(), held.version.clone());
        let (from, to) = match (held.state, patch.yanked) {
            (VersionState::Published, true) => (VersionState::Published, VersionState::Yanked),
            (VersionState::Yanked, false) => (VersionState::Yanked, VersionState::Published),
            (VersionState::Published, false) | (VersionState::Yanked, true) => return Ok(held.id),
            (VersionState::InReview, _) => return Err(UNDER_REVIEW.into()),
            (VersionState::Blocked | VersionState::Revoked, _) => return Err(REVOKED.into()),
        };
        let reason = patch.reason.clone().filter(|reason| patch.yanked && !reason.trim().is_empty());
        Version::set_state(tx, held.id, from, to, reason.as_deref()).await?;
        Skill::settle(tx, skill.id, None).await?;
        let about = About::in_org(org);
        if patch.yanked {
            session.record_about(tx, &janua, about, &SkillYanked { slug, version, reason }).await?;
        } else {
            session.record_about(tx, &janua, about, &SkillUnyanked { slug, version }).await?;
        }
        Ok(held.id)
    })?;
    let version = Version::by_id(&janua.db, changed).await?.ok_or(NOT_FOUND)?;
    Ok(Json(VersionAnswer { version: VersionView::of(&version, Standing::Admin) }))
}

#[derive(Deserialize, JsonSchema)]
struct DownloadQuery {
    /// Default: the latest. A yanked version must be named.
    #[schemars(length(max = 64))]
    version: Option<String>,
}

async fn download_skill(
    State(janua): State<Janua>,
    session: Session,
    Path(SkillPath { slug }): Path<SkillPath>,
    Query(query): Query<DownloadQuery>,
) -> Result<Response> {
    if query.version.as_ref().is_some_and(String::is_empty) {
        return Err(INVALID.at("version", "wrong_form", "must be a version such as 1.2.0"));
    }
    let (skill, standing) = reach(&janua, Some(&session), &slug).await?;
    let version = choose(&janua, &skill, standing, query.version.as_deref()).await?;
    if skill.state == SkillState::UnderReview && standing == Standing::Stranger {
        let mine = install::of(&janua, skill.id, session.account().id).await?;
        mine.version.ok_or(UNDER_REVIEW)?;
    }
    package(&janua, &skill, &version, "private, max-age=31536000, immutable").await
}

/// The bytes of a package as they were published.
pub async fn package(janua: &Janua, skill: &Skill, version: &Version, cache: &'static str) -> Result<Response> {
    let key = ObjectKey::parse(&version.object).ok_or(INTERNAL)?;
    let bytes = janua.objects.read(&key, LARGEST_PACKAGE as u64).await?;
    let bytes = bytes.ok_or_else(|| INTERNAL.caused_by("the package of a version is missing"))?;
    Skill::note_download(&janua.db, skill.id).await?;
    Ok((package_headers(skill, version, cache), Body::from(bytes)).into_response())
}
