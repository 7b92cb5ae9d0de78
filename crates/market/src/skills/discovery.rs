//! Public skills for programs that look at well-known addresses (Agent Skills discovery 0.2.0).
use axum::{extract::State, http::HeaderMap, response::Response};
use db::{params, row};
use kernel::{
    Janua,
    fault::{INTERNAL, NOT_FOUND, Result},
    http::{Document, Path, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    api::package,
    model::{SkillState, Visibility},
    view::{REVOKED, Standing, UNDER_REVIEW, choose, reach},
};

const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
/// The most popular ones. Whoever wants all of them pages through `/skills`.
const MOST: u32 = 1000;

pub fn routes() -> Routes {
    Routes::new("skills")
        .get("/.well-known/agent-skills/index.json", discovery_index, "the most popular public skills, for programs")
        .answers::<Index>(200, "application/json")
        .answers_nothing(304)
        .for_any_origin()
        .get("/.well-known/agent-skills/{file}", discovered_package, "the package of a public skill")
        .answers::<String>(200, "application/gzip")
        .fails(&[NOT_FOUND, REVOKED, UNDER_REVIEW])
        .for_any_origin()
}

#[derive(Serialize, JsonSchema)]
struct Index {
    #[serde(rename = "$schema")]
    schema: &'static str,
    skills: Vec<IndexEntry>,
}

#[derive(Serialize, JsonSchema)]
struct IndexEntry {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    description: String,
    url: String,
    digest: String,
}

struct Listed {
    slug: String,
    name: String,
    description: String,
    digest: String,
}
row!(Listed { slug, name, description, digest });

async fn discovery_index(State(janua): State<Janua>, headers: HeaderMap) -> Result<Response> {
    let sql = "SELECT skill.slug, skill.name, skill.description, skill_version.digest
               FROM skill JOIN skill_version ON skill_version.id = skill.latest_id
               WHERE skill.is_listed ORDER BY skill.popularity DESC, skill.id DESC LIMIT $1";
    let listed: Vec<Listed> = janua.db.all(sql, params![MOST]).await?;
    let entry = |skill: Listed| IndexEntry {
        name: skill.name,
        kind: "archive",
        description: skill.description,
        url: format!("/.well-known/agent-skills/{}.tar.gz", skill.slug),
        digest: format!("sha256:{}", skill.digest),
    };
    let index = Index { schema: SCHEMA, skills: listed.into_iter().map(entry).collect() };
    let bytes = serde_json::to_vec(&index).map_err(|error| INTERNAL.caused_by(error))?;
    Ok(Document::new("application/json", bytes).answer(&headers))
}

#[derive(Deserialize, JsonSchema)]
struct PackagePath {
    /// The slug, and `.tar.gz`.
    file: String,
}

async fn discovered_package(
    State(janua): State<Janua>,
    Path(PackagePath { file }): Path<PackagePath>,
) -> Result<Response> {
    let slug = file.strip_suffix(".tar.gz").ok_or(NOT_FOUND)?;
    let (skill, _) = reach(&janua, None, slug).await?;
    if skill.visibility != Visibility::Public {
        return Err(NOT_FOUND.into());
    }
    if skill.state == SkillState::UnderReview {
        return Err(UNDER_REVIEW.into());
    }
    let version = choose(&janua, &skill, Standing::Stranger, None).await?;
    // The latest one may be another tomorrow, and withdrawn in a minute.
    package(&janua, &skill, &version, "public, max-age=60").await
}
