//! A folder that the bench has filled is one the server takes for its own.
use bench::{
    JanuaBinary,
    seed::{self, User, Wish},
};
use serde_json::{Value, json};

use crate::support::{Server, Visit};

const USERS: u64 = 1_000;
const PASSWORD: &str = "correct horse battery staple";

fn ask(visit: &mut Visit, method: &str, path: &str, token: &str, body: &str) -> Value {
    let (status, answer) = visit.ask(method, path, token, body);
    assert_eq!(status, 200, "{method} {path}: {answer}");
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn people_who_were_seeded_sign_in_and_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let janua = JanuaBinary::at_or_built(Some(env!("CARGO_BIN_EXE_janua").into())).unwrap();
    let wish = Wish { users: USERS, orgs: 100, webhooks: 100, events: 3 };
    let data = folder.path().join("data");
    let seeded = seed::fill(&janua, &data, &wish).unwrap();
    assert!(seed::fill(&janua, &data, &wish).is_err(), "a folder with something in it is nobody's to fill");

    let server = Server::start(folder.path(), &[("JANUA_RATE_LIMITS", "off")]);
    let mut visit = server.visit();
    for user in [User(1), User(USERS / 2), User(USERS)] {
        let login = json!({ "email": user.email(), "password": PASSWORD, "options": { "tokenDelivery": "body" } });
        let entered = ask(&mut visit, "POST", "/auth/login", "", &login.to_string());
        let token = entered["accessToken"].as_str().unwrap();
        assert!(entered["org"]["id"].is_string(), "{entered}");
        let me = ask(&mut visit, "GET", "/auth/me", token, "");
        assert!(me.to_string().contains(&user.name()), "{me}");
        let refreshed = json!({ "refreshToken": entered["refreshToken"] }).to_string();
        ask(&mut visit, "POST", "/auth/refresh", "", &refreshed);
        let sessions = ask(&mut visit, "GET", "/auth/sessions", token, "");
        assert_eq!(sessions["sessions"].as_array().unwrap().len(), 2, "the seeded one and this one: {sessions}");
        let log = ask(&mut visit, "GET", "/auth/audit-log", token, "");
        assert_eq!(log["events"].as_array().unwrap().len(), 4, "three seeded and this one: {log}");
    }

    let login = json!({ "email": "bench@example.com", "password": PASSWORD }).to_string();
    let owner = ask(&mut visit, "POST", "/auth/login", "", &login)["accessToken"].as_str().unwrap().to_owned();
    let users = format!("/apps/{}/users", seeded.app);
    let page = ask(&mut visit, "GET", &users, &owner, "");
    assert_eq!(page["users"].as_array().unwrap().len(), 50);
    let (first, last) = User(77).names();
    for search in [User(77).email(), format!("{first}%20{last}")] {
        let found = ask(&mut visit, "GET", &format!("{users}?search={search}"), &owner, "");
        assert!(found.to_string().contains(&User(77).email()), "{search}: {found}");
    }
    let members = ask(&mut visit, "GET", &format!("/org/{}/members", seeded.org), &owner, "");
    assert_eq!(members["members"].as_array().unwrap().len(), 50);
    let directory = ask(&mut visit, "GET", "/scim/v2/Users?startIndex=901&count=100", &seeded.scim_token, "");
    assert_eq!(directory["totalResults"], USERS + 1);
    assert_eq!(directory["Resources"].as_array().unwrap().len(), 100, "places have no gaps");
}
