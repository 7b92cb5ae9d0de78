//! The code host of an organization: installations, their links to apps, and deliveries.
use axum::{http::Method, response::Response};
use kernel::{
    fault::Result,
    http::{Path, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::nav::{Area, NavEntry};
use crate::{
    act::with_outcome,
    form::{Fields, OwnPage},
    me::{Me, Sender},
    outcome::FormOutcome,
    page::{error, go, note_to, noted, pages},
};

pub const NAV: &[NavEntry] = &[NavEntry::new(Area::Org, "", "Code", "branch", "/code")];

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/console/orgs/{id}/code", code_page, "installations of an organization at the code host")
        .post("/console/orgs/{id}/code/connect", connect, "go to the code host to connect an installation")
        .get(
            "/console/orgs/{id}/code/{installationId}",
            installation_page,
            "one installation: its links and deliveries",
        )
        .post("/console/orgs/{id}/code/{installationId}", change_link, "set or remove one link of an installation")
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OfOrg {
    id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfInstallation {
    id: String,
    installation_id: String,
}

const ORG: (&str, &str) = ("org", "/org/{id}?limit=1");

async fn code_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    let asks = [ORG, ("list", "/codehost/installations?orgId={id}&limit=100")];
    me.show("console/code.html", &place, &asks).await
}

async fn installation_page(me: Me, Path(place): Path<OfInstallation>) -> Response {
    let asks = [
        ORG,
        ("found", "/codehost/installations/{installationId}"),
        ("list", "/codehost/installations/{installationId}/deliveries?{query}"),
        ("?apps", "/apps?limit=100"),
    ];
    let chosen = json!({ "repository": me.parameter("repository"), "app_id": me.parameter("app") });
    me.show_with("console/code_installation.html", &place, &asks, chosen).await
}

/// Browsers follow no form to another site, so the way there is a link.
async fn connect(_: OwnPage, Sender(me): Sender, Path(place): Path<OfOrg>, _fields: Fields) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let body = json!({ "orgId": place.id });
    match me.ask(Method::POST, "/codehost/authorize", Some(&body)).await {
        Ok(said) => {
            let url = said.body["url"].as_str().unwrap_or("/console").to_owned();
            let text = "You choose an account and its repositories there, and come back here.";
            me.keeps(note_to(&me.janua, "Continue on GitHub", text, ("Continue", &url)))
        }
        Err(fault) => me.keeps(error(&me.janua, &fault)),
    }
}

/// The interface takes all links at once; a form is about one of them.
async fn change_link(_: OwnPage, Sender(me): Sender, Path(place): Path<OfInstallation>, fields: Fields) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let OfInstallation { id, installation_id } = &place;
    let plain = |text: &str| text.chars().filter(|c| c.is_ascii_hexdigit() || *c == '-').collect::<String>();
    let back = format!("/console/orgs/{}/code/{}", plain(id), plain(installation_id));
    let outcome = match set_link(&me, &plain(installation_id), &fields).await {
        Ok(()) => FormOutcome::of_success(&fields, Value::Null),
        Err(fault) => {
            noted(&fault);
            FormOutcome::of_fault(&fields, &fault, Value::Null)
        }
    };
    let to = with_outcome(&me, &back, &outcome).await;
    me.keeps(go(&to))
}

async fn set_link(me: &Me, id: &str, fields: &Fields) -> Result<()> {
    let call = format!("/codehost/installations/{id}");
    let shown = me.ask(Method::GET, &call, None).await?.body;
    let repository: i64 = fields.get("repositoryId").trim().parse().unwrap_or(0);
    let app = fields.get("appId");
    let others = shown["installation"]["links"].as_array().into_iter().flatten();
    let others = others.filter(|link| !(link["repositoryId"] == repository && link["appId"] == app));
    let mut links: Vec<Value> = others.cloned().collect();
    if fields.get("remove").is_empty() {
        let given = |name: &str| Some(fields.get(name).trim()).filter(|text| !text.is_empty());
        // First, so that what is wrong with it is known by its place.
        links.insert(
            0,
            json!({
                "repositoryId": repository, "appId": app, "productionBranch": given("productionBranch"),
                "outputDirectory": fields.get("outputDirectory"), "previews": given("previews").unwrap_or("off"),
                "forks": fields.get("forks") == "true", "deployedBy": given("deployedBy").unwrap_or("push"),
            }),
        );
    }
    me.ask(Method::PATCH, &call, Some(&json!({ "links": links }))).await.map(drop)
}
