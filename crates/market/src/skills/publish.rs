//! Publishing: a package is read and scanned before anything is stored; then its bytes are stored, and one transaction makes
//! it a version. It is whole or it is not there.
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    extract::{FromRequestParts, State},
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use db::Tx;
use kernel::{
    Janua,
    fault::{Code, FORBIDDEN, Fault, INTERNAL, INVALID, NOT_FOUND, OVERLOADED, Result, STORAGE_FULL, UNAVAILABLE},
    http::{GenContext, Json, Operation, OperationInput, Path, Query, Raw, Routes, may_answer},
    ports::objects::Key as ObjectKey,
    transact,
};
use schemars::JsonSchema;
use semver::Version as Semver;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{
    apps::{Application, slugs::SLUG_TAKEN},
    enter::{self, Session, builders, is_platform_owner},
    events::About,
    orgs::{Membership, Org, OrgId, Role},
};
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::{
    events::{SkillPublished, SkillReviewRequested},
    keys,
    mails::{SkillNews, tell_platform},
    model::{
        Namespace, NewVersion, Skill, SkillId, SkillState, StoredObject, Version, VersionId, VersionState, Visibility,
    },
    names::{INVALID_SLUG, Slug, looks_like, skeleton},
    package::{INVALID_PACKAGE, INVALID_SKILL, LARGEST_PACKAGE, Package, PackedFile, invalid},
    ratings, readme,
    scan::{self, Scan, Verdict},
    view::{SkillView, Standing, VersionView},
};
use crate::Settings;

pub const NOT_YOUR_NAMESPACE: Code = Code::new(
    403,
    "not_your_namespace",
    "You may publish under the slug of an organization where you are an admin, or under a domain that one of its apps has proven.",
);
pub const SKILL_BLOCKED: Code =
    Code::new(400, "skill_blocked", "The scan found something harmful in the package. Nothing was published.");
pub const VERSION_EXISTS: Code =
    Code::new(409, "version_exists", "This version was published with other content. Use a new version.");
pub const TOO_MANY_SKILLS: Code =
    Code::new(409, "too_many_skills", "The limit of skills, versions, stars or installs is reached.");
const NOT_GZIP: Code =
    Code::new(415, "archive_type", "Send one gzip-compressed tar archive, with Content-Type application/gzip.");

/// The finding of a name that can be taken for a well-known one.
pub const LOOK_ALIKE: &str = "look_alike_name";

const MOST_OF_ORG: i64 = 1000;
const MOST_VERSIONS: i64 = 1000;
const FOLDER: &str = "skills";

pub fn routes() -> Routes {
    Routes::new("skills")
        .body_limit(LARGEST_PACKAGE)
        .post("/skills", publish_skill, "publish a skill")
        .answers::<PublishedSkill>(200, "application/json")
        .answers::<PublishedSkill>(202, "application/json")
        .fails(REFUSALS)
        .fails(&[SLUG_TAKEN, INVALID_SLUG, builders::BUILDERS_ONLY])
        .post("/skills/{slug}/versions", publish_version, "publish a new version")
        .answers::<PublishedVersion>(200, "application/json")
        .answers::<PublishedVersion>(202, "application/json")
        .fails(REFUSALS)
}

const REFUSALS: &[Code] = &[
    INVALID_PACKAGE,
    INVALID_SKILL,
    SKILL_BLOCKED,
    NOT_YOUR_NAMESPACE,
    FORBIDDEN,
    NOT_FOUND,
    VERSION_EXISTS,
    TOO_MANY_SKILLS,
    OVERLOADED,
    UNAVAILABLE,
    STORAGE_FULL,
    super::view::REVOKED,
];

/// Says that the body is a package.
pub struct PackageType;

impl FromRequestParts<Janua> for PackageType {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let known = ["application/gzip", "application/x-gzip", "application/x-gtar", "application/octet-stream"];
        if known.contains(&kind.as_str()) { Ok(Self) } else { Err(NOT_GZIP.into()) }
    }
}

impl OperationInput for PackageType {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        may_answer(operation, &[NOT_GZIP]);
    }
}

#[derive(Deserialize, JsonSchema)]
struct PublishQuery {
    /// The slug of an organization, or a proven domain from right to left (`com.example`). Default: the organization that
    /// the session acts for.
    #[schemars(length(max = 160))]
    namespace: Option<String>,
    /// Such as `1.2.0`. Default: `metadata.version` of SKILL.md.
    #[schemars(length(min = 1, max = 64))]
    version: Option<String>,
    /// Default: `public`.
    visibility: Option<Visibility>,
}

#[derive(Serialize, JsonSchema)]
struct PublishedSkill {
    skill: SkillView,
    version: VersionView,
}

#[derive(Serialize, JsonSchema)]
struct PublishedVersion {
    version: VersionView,
}

/// The organization that publishes, and under what.
struct Place {
    org: OrgId,
    namespace: String,
    is_verified: bool,
}

async fn publish_skill(
    State(janua): State<Janua>,
    session: Session,
    Query(query): Query<PublishQuery>,
    _: PackageType,
    Raw(body): Raw,
) -> Result<Response> {
    let place = find_place(&janua, &session, query.namespace.as_deref()).await?;
    let (package, scan) = read(&janua, body.clone(), &place.namespace).await?;
    let version = number(&package, query.version.as_deref())?;
    let slug = Slug::of(&place.namespace, &package.skill.name)?;
    if let Some(known) = Skill::find(&janua.db, &slug.to_string()).await? {
        return repeated(&janua, &session, &known, &version, &package).await;
    }
    refuse_blocked(&scan)?;
    let objects = store(&janua, &body, &package).await?;
    let readme = draw(&package).await?;
    let new = NewVersion {
        package: &package,
        scan: &scan,
        size: i64::try_from(body.len()).unwrap_or(i64::MAX),
        object: objects.0.as_str(),
        pack: objects.1.as_str(),
        readme: &readme,
        by: session.account().id,
    };
    let visibility = query.visibility.unwrap_or(Visibility::Public);
    let made = transact!(janua, async |tx| {
        hold_admin(tx, &session, place.org).await?;
        let is_bare = slug.namespace.is_empty();
        if !is_bare && !Namespace::claim(tx, &slug, place.org, janua.clock.now()).await? {
            return Err(NOT_YOUR_NAMESPACE.into());
        }
        if Skill::count_of_org(tx, place.org).await? >= MOST_OF_ORG {
            return Err(TOO_MANY_SKILLS.into());
        }
        let mean = ratings::mean(&mut *tx).await?;
        let found = Skill::insert(tx, &janua, &slug, (place.org, place.is_verified), visibility, mean).await?;
        // Somebody else was first: the next try sees what was published.
        let Some(skill) = found else { return Ok(None) };
        insert(tx, &janua, &session, skill, &version, &new).await.map(Some)
    })?;
    match made {
        Some(id) => show_skill(&janua, id).await,
        None => {
            let known = Skill::find(&janua.db, &slug.to_string()).await?.ok_or(NOT_FOUND)?;
            repeated(&janua, &session, &known, &version, &package).await
        }
    }
}

/// A slug that is taken. The same package again gets the first answer.
async fn repeated(
    janua: &Janua,
    session: &Session,
    known: &Skill,
    version: &str,
    package: &Package,
) -> Result<Response> {
    if Standing::of(janua, Some(session), known).await? != Standing::Admin {
        return Err(SLUG_TAKEN.into());
    }
    match Version::find(&janua.db, known.id, version).await? {
        Some(found) if found.digest == package.digest => show_skill(janua, found.id).await,
        _ => Err(SLUG_TAKEN
            .because(format!("{} exists. Publish a version at /skills/{}/versions.", known.slug, known.slug))),
    }
}

#[derive(Deserialize, JsonSchema)]
pub struct SkillPath {
    pub slug: String,
}

#[derive(Deserialize, JsonSchema)]
struct VersionQuery {
    /// Such as `1.2.0`. Default: `metadata.version` of SKILL.md.
    #[schemars(length(min = 1, max = 64))]
    version: Option<String>,
}

async fn publish_version(
    State(janua): State<Janua>,
    session: Session,
    Path(SkillPath { slug }): Path<SkillPath>,
    Query(query): Query<VersionQuery>,
    _: PackageType,
    Raw(body): Raw,
) -> Result<Response> {
    let skill = match reach_own(&janua, &session, &slug).await {
        Err(fault) if fault.code() == FORBIDDEN => return Err(NOT_FOUND.into()),
        found => found?,
    };
    let org = skill.org_id.ok_or(NOT_FOUND)?;
    if skill.domain.is_some() && !is_proven(&janua, &Slug::parse(&skill.slug)?, org).await? {
        return Err(NOT_YOUR_NAMESPACE.because("The domain of this skill is no longer proven."));
    }
    let (package, scan) = read(&janua, body.clone(), &skill.namespace).await?;
    let version = number(&package, query.version.as_deref())?;
    if package.skill.name != skill.name {
        let say = format!("must be {}, the name of the skill", skill.name);
        return Err(invalid(vec![("name".into(), "other_skill", say)]));
    }
    if let Some(known) = Version::find(&janua.db, skill.id, &version).await? {
        return same_or_taken(&janua, &known, &package).await;
    }
    refuse_blocked(&scan)?;
    let objects = store(&janua, &body, &package).await?;
    let readme = draw(&package).await?;
    let new = NewVersion {
        package: &package,
        scan: &scan,
        size: i64::try_from(body.len()).unwrap_or(i64::MAX),
        object: objects.0.as_str(),
        pack: objects.1.as_str(),
        readme: &readme,
        by: session.account().id,
    };
    let made = transact!(janua, async |tx| {
        hold_admin(tx, &session, org).await?;
        let held =
            Skill::hold(tx, skill.id).await?.filter(|held| held.state != SkillState::Removed).ok_or(NOT_FOUND)?;
        if Version::find(&mut *tx, held.id, &version).await?.is_some() {
            return Ok(None);
        }
        if Version::count(tx, held.id).await? >= MOST_VERSIONS {
            return Err(TOO_MANY_SKILLS.into());
        }
        insert(tx, &janua, &session, held.id, &version, &new).await.map(Some)
    })?;
    match made {
        Some(id) => show_version(&janua, id).await,
        None => {
            let known = Version::find(&janua.db, skill.id, &version).await?.ok_or(NOT_FOUND)?;
            same_or_taken(&janua, &known, &package).await
        }
    }
}

/// A number that is taken. The same package again gets the first answer, whatever became of the version.
async fn same_or_taken(janua: &Janua, known: &Version, package: &Package) -> Result<Response> {
    if known.digest == package.digest { show_version(janua, known.id).await } else { Err(VERSION_EXISTS.into()) }
}

/// A skill of an organization where the caller is an admin: 403 for its members, 404 for others.
pub async fn reach_own(janua: &Janua, session: &Session, slug: &str) -> Result<Skill> {
    let skill = Skill::find(&janua.db, slug).await?.ok_or(NOT_FOUND)?;
    let membership = match skill.org_id {
        Some(org) => Membership::of(&janua.db, org, session.account().id).await?,
        None => None,
    };
    match membership.ok_or(NOT_FOUND)?.role {
        Role::Member => Err(FORBIDDEN.into()),
        Role::Admin | Role::Owner => Ok(skill),
    }
}

/// Locks the organization and checks that the caller is an admin of it.
pub async fn hold_admin(tx: &mut Tx, session: &Session, org: OrgId) -> Result<()> {
    if !Org::hold(tx, org).await? {
        return Err(NOT_FOUND.into());
    }
    let membership = Membership::of(&mut *tx, org, session.account().id).await?.ok_or(NOT_FOUND)?;
    if membership.role < Role::Admin { Err(FORBIDDEN.into()) } else { Ok(()) }
}

/// Where a skill is published: an organization where the caller is an admin, and a namespace that is its own.
async fn find_place(janua: &Janua, session: &Session, wanted: Option<&str>) -> Result<Place> {
    let own: Vec<Membership> = Membership::all_of(&janua.db, session.account().id).await?;
    let own: Vec<Membership> = own.into_iter().filter(|membership| membership.role >= Role::Admin).collect();
    let active = session.org().map(|membership| membership.org.id);
    let rather = own.iter().find(|membership| Some(membership.org.id) == active).or(own.first());
    match wanted {
        Some("") => {
            let org = rather.filter(|_| is_platform_owner(janua, session)).ok_or(NOT_YOUR_NAMESPACE)?.org.id;
            Ok(Place { org, namespace: String::new(), is_verified: false })
        }
        Some(namespace) if namespace.contains('.') => {
            let slug = Slug::of(namespace, "a")?;
            for membership in &own {
                if is_proven(janua, &slug, membership.org.id).await? {
                    return Ok(Place { org: membership.org.id, namespace: namespace.to_owned(), is_verified: true });
                }
            }
            Err(NOT_YOUR_NAMESPACE.into())
        }
        Some(namespace) => {
            Slug::of(namespace, "a")?;
            let held = Namespace::find(&janua.db, namespace).await?;
            let is_own = |membership: &&Membership| match &held {
                Some(held) => held.org_id == Some(membership.org.id),
                None => membership.org.slug == namespace,
            };
            let org = own.iter().find(is_own).ok_or(NOT_YOUR_NAMESPACE)?.org.id;
            Ok(Place { org, namespace: namespace.to_owned(), is_verified: false })
        }
        None => {
            let org = match rather {
                Some(membership) => membership.org.clone(),
                None => {
                    builders::refuse_others(janua, session).await?;
                    transact!(janua, async |tx| enter::create_own_org(tx, janua, session).await)?.org
                }
            };
            Ok(Place { org: org.id, namespace: org.slug, is_verified: false })
        }
    }
}

/// Whether an app of the organization has proven the domain of a namespace.
pub async fn is_proven(janua: &Janua, slug: &Slug, org: OrgId) -> db::Result<bool> {
    let Some(domain) = slug.domain() else { return Ok(false) };
    let Some(app) = Application::of_domain(&janua.db, &domain).await? else { return Ok(false) };
    Ok(Application::find(&janua.db, app).await?.is_some_and(|app| app.org_id == org))
}

/// The version of a package: that of the query or of `SKILL.md`, which must agree.
fn number(package: &Package, wanted: Option<&str>) -> Result<String> {
    let own = package.skill.version.as_deref();
    let wrong = |code, say: &str| invalid(vec![("metadata.version".into(), code, say.to_owned())]);
    let version = match (wanted, own) {
        (Some(wanted), Some(own)) if wanted != own => {
            return Err(wrong("other_version", "must be the version of the query"));
        }
        (Some(version), _) | (None, Some(version)) => version,
        (None, None) => return Err(wrong("required", "is missing, and the query has no version")),
    };
    let is_strict = |parsed: &Semver| parsed.to_string() == version && version.len() <= 64;
    match Semver::parse(version).ok().filter(is_strict) {
        Some(_) => Ok(version.to_owned()),
        None if wanted.is_some() => Err(INVALID.at("version", "wrong_form", "must be a version such as 1.2.0")),
        None => Err(wrong("wrong_form", "must be a version such as 1.2.0")),
    }
}

/// Threads that read and scan. Few at once, and few that wait.
pub struct ScanPool {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

const AT_ONCE: usize = 2;
const MOST_WAITING: usize = 8;

impl Default for ScanPool {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(AT_ONCE)), waiting: AtomicUsize::new(0) }
    }
}

#[cfg(test)]
impl ScanPool {
    /// Fills all places, or empties them.
    pub fn fill(&self, is_full: bool) {
        let waiting = if is_full { MOST_WAITING + AT_ONCE } else { 0 };
        self.waiting.store(waiting, Relaxed);
    }
}

/// One who waits, for as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Reads and scans a package on a thread of its own; 503 when too many wait already.
pub async fn examine(janua: &Janua, bytes: Bytes) -> Result<(Package, Scan)> {
    let pool = janua.own::<ScanPool>();
    let waiting = pool.waiting.fetch_add(1, Relaxed);
    let place = Waiting(&pool.waiting);
    if waiting >= MOST_WAITING + AT_ONCE {
        return Err(Fault::from(OVERLOADED).retry_after(Duration::from_secs(5)));
    }
    let permit = pool.places.clone().acquire_owned().await.map_err(|error| INTERNAL.caused_by(error))?;
    let blocked = janua.config.of::<Settings>().skill_blocked_digests.clone();
    let work = spawn_blocking(move || {
        let _permit = permit;
        let package = Package::read(&bytes)?;
        let scan = scan::scan(&package, &blocked);
        Ok::<_, Fault>((package, scan))
    });
    let examined = work.await.map_err(|error| INTERNAL.caused_by(error))?;
    drop(place);
    examined
}

/// Reads and scans a package, and compares its name with well-known ones.
async fn read(janua: &Janua, bytes: Bytes, namespace: &str) -> Result<(Package, Scan)> {
    let (package, mut scan) = examine(janua, bytes).await?;
    let own = skeleton(&package.skill.name);
    let known = Skill::well_known(&janua.db, namespace).await?;
    if let Some(known) = known.iter().find(|known| looks_like(&own, &known.skeleton)) {
        let message = format!("The name can be taken for {}, which many have installed.", known.slug);
        scan.add(LOOK_ALIKE, Verdict::Review, None, &message);
    }
    Ok((package, scan))
}

fn refuse_blocked(scan: &Scan) -> Result<()> {
    if scan.verdict < Verdict::Block {
        return Ok(());
    }
    Err(Fault::from(SKILL_BLOCKED).with_extra("findings", &scan.findings))
}

async fn draw(package: &Package) -> Result<String> {
    let body = package.skill.body.clone();
    spawn_blocking(move || readme::draw(&body)).await.map_err(|error| INTERNAL.caused_by(error))
}

/// Stores the package and its files. Their rows come first, so that what is interrupted is swept.
async fn store(janua: &Janua, bytes: &Bytes, package: &Package) -> Result<(ObjectKey, ObjectKey)> {
    let object = ObjectKey::new(FOLDER, "tgz", &janua.entropy);
    let pack = ObjectKey::new(FOLDER, "pack", &janua.entropy);
    let now = janua.clock.now();
    transact!(janua, async |tx| {
        StoredObject::announce(tx, object.as_str(), now).await?;
        Ok(StoredObject::announce(tx, pack.as_str(), now).await?)
    })?;
    janua.objects.write(&object, "application/gzip", bytes).await?;
    janua.objects.write(&pack, "application/octet-stream", &package.pack).await?;
    Ok((object, pack))
}

/// Writes the version and, if the scan allows it, publishes it.
async fn insert(
    tx: &mut Tx,
    janua: &Janua,
    session: &Session,
    skill: SkillId,
    version: &str,
    new: &NewVersion<'_>,
) -> Result<VersionId> {
    let inserted = match Version::insert(tx, janua, skill, version, new).await {
        // Its objects were swept while it waited.
        Err(db::Error::Missing) => return Err(UNAVAILABLE.into()),
        inserted => inserted?,
    };
    let id = inserted.ok_or(VERSION_EXISTS)?;
    let skill = Skill::by_id(&mut *tx, skill).await?.ok_or(NOT_FOUND)?;
    let about = skill.org_id.map(About::in_org).unwrap_or_default();
    if new.scan.verdict == Verdict::Allow {
        make_public(tx, janua, &skill, id).await?;
        let event = SkillPublished {
            slug: skill.slug.clone(),
            version: version.to_owned(),
            digest: new.package.digest.clone(),
        };
        session.record_about(tx, janua, about, &event).await?;
    } else {
        let findings = new.scan.findings.iter().map(|finding| finding.code.clone()).collect();
        let event = SkillReviewRequested { slug: skill.slug.clone(), version: version.to_owned(), findings };
        session.record_about(tx, janua, about, &event).await?;
        Skill::settle(tx, skill.id, None).await?;
        tell_platform(tx, janua, &skill, Some(version), SkillNews::Waits).await?;
    }
    Ok(id)
}

/// Signs a version that waits, and offers it from now on.
pub async fn make_public(tx: &mut Tx, janua: &Janua, skill: &Skill, id: VersionId) -> Result<bool> {
    let now = janua.clock.now();
    let Some(version) = Version::by_id(&mut *tx, id).await? else { return Ok(false) };
    let files: Vec<_> = version.files.iter().map(PackedFile::view).collect();
    let manifest = keys::canonical(&json!({
        "slug": skill.slug,
        "version": version.version,
        "digest": format!("sha256:{}", version.digest),
        "files": files,
        "publisher": { "namespace": skill.namespace, "orgName": skill.org_name, "domain": skill.domain },
        "publishedAt": now,
    }));
    let signed = keys::sign(tx, janua, &manifest).await?;
    let is_new = Version::publish(tx, id, (&manifest, &signed.signature, &signed.key_id), now).await?;
    if is_new {
        Skill::settle(tx, skill.id, Some(now)).await?;
    }
    Ok(is_new)
}

fn status_of(version: &Version) -> StatusCode {
    if version.state == VersionState::InReview { StatusCode::ACCEPTED } else { StatusCode::OK }
}

async fn show_skill(janua: &Janua, id: VersionId) -> Result<Response> {
    let version = Version::by_id(&janua.db, id).await?.ok_or(NOT_FOUND)?;
    let skill = Skill::by_id(&janua.db, version.skill_id).await?.ok_or(NOT_FOUND)?;
    let body = PublishedSkill { skill: SkillView::of(&skill), version: VersionView::of(&version, Standing::Admin) };
    Ok((status_of(&version), Json(body)).into_response())
}

async fn show_version(janua: &Janua, id: VersionId) -> Result<Response> {
    let version = Version::by_id(&janua.db, id).await?.ok_or(NOT_FOUND)?;
    let body = PublishedVersion { version: VersionView::of(&version, Standing::Admin) };
    Ok((status_of(&version), Json(body)).into_response())
}
