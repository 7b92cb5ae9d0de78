//! Skills of an organization: what it publishes, and how. The review queue of platform owners.
use axum::{body::Body, http::Method, response::Response};
use futures_util::{StreamExt as _, TryStreamExt as _};
use kernel::{
    fault::{Fault, INVALID, MALFORMED, Result},
    http::{Path, Routes},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::nav::{Area, NavEntry};
use crate::{
    form::OwnPage,
    me::{Me, Sender},
    multipart::StreamedForm,
    outcome::FormOutcome,
    page::{go, noted, pages},
};

pub const NAV: &[NavEntry] = &[
    NavEntry::new(Area::Org, "", "Skills", "star", "/skills"),
    NavEntry::new(Area::Platform, "", "Skills", "star", "/platform/skills"),
];

/// As long as the longest package, and the form around it.
const LONGEST_FORM: usize = (5 << 20) + (64 << 10);

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/orgs/{id}/skills", org_skills_page, "skills of an organization")
        .get("/console/orgs/{id}/skills/{slug}", org_skill_page, "one skill: its versions and scan findings")
        .get("/console/platform/skills", review_page, "skills that wait for a decision")
        .post("/console/orgs/{id}/skills", upload_package, "publish a package that a form sends")
        .streams(LONGEST_FORM)
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OfOrg {
    id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OfOrgSkill {
    id: String,
    slug: String,
}

const ORG: (&str, &str) = ("org", "/org/{id}?limit=1");

async fn org_skills_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    me.show("console/skills.html", &place, &[ORG, ("?list", "/org/{id}/skills?{query}")]).await
}

async fn org_skill_page(me: Me, Path(place): Path<OfOrgSkill>) -> Response {
    let asks = [ORG, ("skill", "/skills/{slug}"), ("list", "/skills/{slug}/versions?{query}")];
    me.show("console/skill.html", &place, &asks).await
}

async fn review_page(me: Me) -> Response {
    let asks = [("waiting", "/admin/skills/versions?{query}"), ("reported", "/admin/skills/reported")];
    me.show("console/skill_review.html", &serde_json::json!({}), &asks).await
}

/// A form with a file.
async fn upload_package(
    _: OwnPage,
    Sender(me): Sender,
    Path(OfOrg { id }): Path<OfOrg>,
    form: StreamedForm,
) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let page = format!("/console/orgs/{id}/skills");
    let outcome = match publish(&me, form).await {
        Ok((slug, is_published)) => {
            let notice = if is_published { "skill_published" } else { "skill_waits" };
            let outcome = FormOutcome::noted("publish", notice);
            return me.keeps(go(&crate::act::with_outcome(&me, &format!("{page}/{slug}"), &outcome).await));
        }
        Err(fault) => {
            noted(&fault);
            let mut outcome = FormOutcome::refused("publish", &fault);
            let found = fault.extra("findings").and_then(Value::as_array);
            let sentences = found.into_iter().flatten().filter_map(|finding| finding["message"].as_str());
            let said: Vec<&str> = outcome.wrong.as_deref().into_iter().chain(sentences).collect();
            let said = said.join(" ");
            outcome.wrong = Some(said);
            outcome
        }
    };
    me.keeps(go(&crate::act::with_outcome(&me, &format!("{page}?new=skill"), &outcome).await))
}

/// Sends the package on: to the skill that a field names, or as a new one. Answers its slug, and whether it is published.
async fn publish(me: &Me, StreamedForm { kind, bytes, .. }: StreamedForm) -> Result<(String, bool)> {
    let boundary = multer::parse_boundary(&kind).map_err(|_| MALFORMED.because("The form cannot be read."))?;
    let bytes = bytes.map_err(|fault: Fault| std::io::Error::other(fault.to_string()));
    let mut form = multer::Multipart::new(bytes.boxed(), boundary);
    let broken = |error: multer::Error| MALFORMED.caused_by(error);
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let (mut query, mut slug) = (vec![], None);
    while let Some(field) = form.next_field().await.map_err(broken)? {
        match field.name().map(str::to_owned).as_deref() {
            Some(name @ ("namespace" | "version" | "visibility")) => {
                let value = field.text().await.map_err(broken)?;
                if !value.trim().is_empty() {
                    query.push(format!("{name}={}", encoded(value.trim())));
                }
            }
            Some("slug") => slug = Some(field.text().await.map_err(broken)?),
            Some("package") => {
                if field.file_name().is_none_or(str::is_empty) {
                    break;
                }
                let to = match &slug {
                    Some(slug) => format!("/skills/{}/versions", encoded(slug)),
                    None => "/skills".to_owned(),
                };
                let package = field.bytes().await.map_err(broken)?;
                let to = format!("{to}?{}", query.join("&"));
                let said = me.send(Method::POST, &to, "application/gzip", Body::from(package)).await?;
                let made = said.body["skill"]["slug"].as_str().map(str::to_owned);
                let is_published = said.body["version"]["state"] == "published";
                return Ok((made.or(slug).unwrap_or_default(), is_published));
            }
            _ => {}
        }
    }
    Err(INVALID.at("package", "required", "Choose a package."))
}
