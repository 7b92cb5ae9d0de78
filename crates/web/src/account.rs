//! One's own account: who one is, how one proves it, where one is signed in, and what happened.
use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use kernel::{Janua, http::Routes};
use serde_json::Value;

use crate::{
    activity,
    console::nav::{Area::Account, NavEntry},
    me::Me,
    page::{error, note_to, pages, refused_on_a_page},
};

pub const NAV: &[NavEntry] = &[
    NavEntry::new(Account, "", "Profile", "user", ""),
    NavEntry::new(Account, "", "Security", "shield", "/security"),
    NavEntry::new(Account, "", "Sessions", "laptop", "/sessions"),
    NavEntry::new(Account, "", "Connected apps", "key", "/apps"),
    NavEntry::new(Account, "", "Installed skills", "star", "/skills"),
    NavEntry::new(Account, "", "Activity", "activity", "/activity"),
    NavEntry::new(Account, "", "Your data", "download", "/data"),
];

/// Pages for users who have just left.
fn left() -> Routes {
    pages("pages").get("/goodbye", goodbye_page, "confirmation that the account was deleted").get(
        "/signed-out",
        signed_out_page,
        "confirmation that all sessions were ended",
    )
}

async fn goodbye_page(State(janua): State<Janua>) -> Response {
    let text = "Your profile, passkeys, sessions and connected apps are gone. You can close this page.";
    note_to(&janua, "Account deleted", text, ("Create a new account", "/sign-up"))
}

async fn signed_out_page(State(janua): State<Janua>) -> Response {
    let text = "All sessions of your account were ended, on every device.";
    note_to(&janua, "You are signed out", text, ("Sign in again", "/sign-in"))
}

pub fn routes() -> Routes {
    let export = Routes::new("pages").get("/account/data/export", export_file, "the data export as a file");
    pages("pages")
        .get("/account", profile_page, "the profile of the signed-in user")
        .get("/account/security", security_page, "password, second factors, passkeys")
        .get("/account/sessions", sessions_page, "sessions and trusted devices")
        .get("/account/apps", consents_page, "connected apps")
        .get("/account/skills", skills_page, "installed skills, and where an update is available")
        .get("/account/data", data_page, "the data export, and deleting the account")
        .and(activity::with_file(pages("pages").get(
            "/account/activity",
            activity_page,
            "the activity of the account",
        )))
        .and(left())
        .and(refused_on_a_page(export).answers::<identity::Export>(200, "application/json"))
}

async fn profile_page(me: Me) -> Response {
    me.show("account/profile.html", &(), &[("user", "/auth/me")]).await
}

async fn security_page(me: Me) -> Response {
    me.show("account/security.html", &(), &[("user", "/auth/me")]).await
}

async fn sessions_page(me: Me) -> Response {
    me.show("account/sessions.html", &(), &[("list", "/auth/sessions"), ("trusted", "/auth/trusted-devices")]).await
}

async fn consents_page(me: Me) -> Response {
    me.show("account/consents.html", &(), &[("list", "/auth/consents?{query}")]).await
}

async fn skills_page(me: Me) -> Response {
    me.show("account/skills.html", &(), &[("list", "/skills/installed?{query}")]).await
}

async fn activity_page(me: Me) -> Response {
    activity::show(&me, "account/activity.html", &(), ("list", "/auth/audit-log"), &[]).await
}

async fn data_page(me: Me) -> Response {
    me.show("account/data.html", &(), &[("orgs", "/user/orgs")]).await
}

async fn export_file(me: Me) -> Response {
    match me.get("/auth/export", &Value::Null).await {
        Ok(said) => {
            let file = serde_json::to_string_pretty(&said.body).unwrap_or_default();
            let mut response = file.into_response();
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let name = HeaderValue::from_static("attachment; filename=\"janua-export.json\"");
            headers.insert(header::CONTENT_DISPOSITION, name);
            me.keeps(response)
        }
        Err(fault) => error(&me.janua, &fault),
    }
}
