//! Search over apps, organizations, people, webhooks and pages: whatever the API shows to the viewer, and nothing else. The
//! script opens it as a command palette.
use axum::response::Response;
use kernel::http::Routes;
use serde::Serialize;
use serde_json::{Value, json};

use super::nav;
use crate::{me::Me, page::pages};

pub fn routes() -> Routes {
    pages("pages").get("/console/search", search_page, "search over apps, organizations, people and pages")
}

/// How many apps and organizations are looked into, and how many results a group shows.
const MOST_LOOKED_INTO: usize = 10;
const MOST_SHOWN: usize = 8;

#[derive(Serialize)]
struct Hit {
    label: String,
    sub: String,
    to: String,
    icon: &'static str,
}

#[derive(Serialize)]
struct Group {
    title: &'static str,
    results: Vec<Hit>,
}

/// The words that were searched for; each must be in the text.
struct Wanted(Vec<String>);

impl Wanted {
    fn is_in(&self, fields: &[&str]) -> bool {
        let text = fields.join(" ").to_lowercase();
        !self.0.is_empty() && self.0.iter().all(|word| text.contains(word))
    }
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

fn rows(answer: &Value, name: &str) -> Vec<Value> {
    answer[name].as_array().cloned().unwrap_or_default()
}

async fn search_page(me: Me) -> Response {
    let q: String = me.parameter("q").chars().take(100).collect();
    let wanted = Wanted(q.to_lowercase().split_whitespace().map(str::to_owned).collect());
    let groups = if wanted.0.is_empty() { vec![] } else { find(&me, &q, &wanted).await };
    me.show_with("console/search.html", &(), &[], json!({ "q": q, "groups": groups })).await
}

async fn find(me: &Me, q: &str, wanted: &Wanted) -> Vec<Group> {
    let ask = async |to: &str, place: &Value| me.get(to, place).await.map(|said| said.body).unwrap_or_default();
    let apps = rows(&ask("/apps?limit=200", &Value::Null).await, "apps");
    let orgs = rows(&ask("/user/orgs", &Value::Null).await, "orgs");
    let (mut found_apps, mut found_orgs, mut people, mut webhooks, mut found_pages) =
        (vec![], vec![], vec![], vec![], vec![]);
    let mut pages_of = |path: &str, role: Option<&str>, of: &str| {
        let links = nav::of(path, role).into_iter().flat_map(|section| section.links);
        let hits = links.filter(|link| wanted.is_in(&[link.label, of]));
        found_pages.extend(hits.map(|link| Hit {
            label: link.label.to_owned(),
            sub: of.to_owned(),
            to: link.to,
            icon: link.icon,
        }));
    };
    for app in &apps {
        let (id, name) = (text(app, "id"), text(app, "name"));
        let to = format!("/console/apps/{id}");
        pages_of(&to, app["role"].as_str(), name);
        if wanted.is_in(&[name, id, text(app, "slug")]) {
            found_apps.push(Hit { label: name.into(), sub: text(app, "slug").into(), to, icon: "overview" });
        }
    }
    for org in &orgs {
        let (id, name) = (text(org, "id"), text(org, "name"));
        let to = format!("/console/orgs/{id}");
        pages_of(&to, org["role"].as_str(), name);
        if wanted.is_in(&[name, id, text(org, "slug")]) {
            found_orgs.push(Hit { label: name.into(), sub: text(org, "slug").into(), to, icon: "org" });
        }
    }
    pages_of("/account", None, "Your account");
    if me.runs_platform() {
        pages_of("/console/platform", None, "Platform");
        for user in rows(&ask("/admin/users?limit=5&search={q}", &json!({ "q": q })).await, "users") {
            let (label, sub) = (text(&user, "name").to_owned(), format!("{}, account", text(&user, "email")));
            people.push(Hit {
                label,
                sub,
                to: format!("/console/platform/users/{}", text(&user, "id")),
                icon: "user",
            });
        }
    }
    for org in orgs.iter().take(MOST_LOOKED_INTO) {
        for member in rows(&ask("/org/{id}/members?limit=200", org).await, "members") {
            let (name, email) = (text(&member, "name"), text(&member, "email"));
            if wanted.is_in(&[name, email, text(&member, "userId")]) {
                let (label, sub) = (format!("{name} ({})", text(org, "name")), email.to_owned());
                let to = format!("/console/orgs/{}/members", text(org, "id"));
                people.push(Hit { label, sub, to, icon: "user" });
            }
        }
    }
    for app in apps.iter().take(MOST_LOOKED_INTO) {
        let (id, name) = (text(app, "id"), text(app, "name"));
        for webhook in rows(&ask("/apps/{id}/webhooks?limit=200", app).await, "webhooks") {
            if wanted.is_in(&[text(&webhook, "url"), text(&webhook, "id")]) {
                let to = format!("/console/apps/{id}/webhooks/{}", text(&webhook, "id"));
                webhooks.push(Hit { label: text(&webhook, "url").into(), sub: name.into(), to, icon: "webhook" });
            }
        }
        let place = json!({ "id": id, "q": q });
        for user in rows(&ask("/apps/{id}/users?limit=5&search={q}", &place).await, "users") {
            let (label, sub) = (text(&user, "name"), format!("{}, end user of {name}", text(&user, "email")));
            let to = format!("/console/apps/{id}/users/{}", text(&user, "id"));
            people.push(Hit { label: label.into(), sub, to, icon: "users" });
        }
    }
    let groups = [
        ("Apps", found_apps),
        ("Organizations", found_orgs),
        ("People", people),
        ("Webhooks", webhooks),
        ("Pages", found_pages),
    ];
    let cut = |(title, mut results): (&'static str, Vec<Hit>)| {
        results.truncate(MOST_SHOWN);
        Group { title, results }
    };
    groups.into_iter().map(cut).filter(|group| !group.results.is_empty()).collect()
}
