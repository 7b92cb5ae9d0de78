//! The server dies at every place where it writes or syncs, one after the other (F02): what was not acknowledged is
//! there as a whole or not at all, and a one-time secret works once, crash or no crash.
//!
//! The short run visits every eighth place, `TEST_STORMS=long` every one.
use std::{fs, path::Path, time::Duration};

use janua_client::verify_webhook;
use serde_json::{Value, json};

use crate::support::{
    Server,
    crash::{Before, Heard, ask, post_once, status},
    mail_with,
    people::{self, PASSWORD, mail_in, member, owner, text, well, with_key},
    receiver::{Came, Receiver},
    token_in, wait,
};

const EMAIL: &str = "ada@example.com";
const NEW: &str = "staple battery horse correct";
// The address is part of every token, so it must outlive the port.
const SETTINGS: &[(&str, &str)] = &[
    ("JANUA_RATE_LIMITS", "off"),
    ("JANUA_BASE_URL", "http://localhost:9"),
    ("JANUA_WEBHOOK_ALLOW_NETS", "127.0.0.0/8"),
    ("WEBHOOK_ALLOW_HTTP", "1"),
];

fn before(folder: &Path) -> Before<'_> {
    Before { folder, settings: SETTINGS, room: env!("CARGO_TARGET_TMPDIR").into() }
}

fn post(server: &Server, path: &str, body: &Value) -> Heard {
    ask(server, "POST", path, "", body)
}

fn login(server: &Server, email: &str, password: &str) -> Heard {
    let body = json!({ "email": email, "password": password, "options": { "tokenDelivery": "body" } });
    post(server, "/auth/login", &body)
}

fn mails(folder: &Path, words: &str) -> usize {
    let files = fs::read_dir(folder.join("data/outbox")).into_iter().flatten().filter_map(Result::ok);
    files.filter(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.contains(words))).count()
}

#[test]
fn f02_a_sign_up_is_whole_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    drop(Server::start(folder.path(), SETTINGS));
    let body = json!({ "email": "new@example.com", "password": PASSWORD, "name": "New" });
    before(folder.path()).sweep(
        |server| post(server, "/auth/register", &body),
        |folder, server, heard| {
            if status(heard) != 200 {
                // Who was not told does it again, which is what the rest must allow.
                assert_eq!(status(&post(server, "/auth/register", &body)), 200);
            }
            let verify = json!({ "token": token_in(&mail_in(&[folder], "new@example.com", "?token=")) });
            assert_eq!(status(&post(server, "/auth/verify-email", &verify)), 200);
            assert_eq!(status(&post(server, "/auth/verify-email", &verify)), 410, "once");
            assert_eq!(status(&login(server, "new@example.com", PASSWORD)), 200);
        },
    );
}

#[test]
fn f02_a_password_is_the_old_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    member(&server, &[folder.path()], EMAIL);
    post(&server, "/auth/forgot-password", &json!({ "email": EMAIL }));
    let outbox = folder.path().join("data/outbox");
    let mail = wait("the mail", || mail_with(&outbox, "Choose a new password"));
    drop(server);
    let reset = json!({ "token": token_in(&mail), "password": NEW });
    before(folder.path()).sweep(
        |server| post(server, "/auth/reset-password", &reset),
        |folder, server, heard| {
            let (old, new) = (status(&login(server, EMAIL, PASSWORD)), status(&login(server, EMAIL, NEW)));
            assert!(matches!((old, new), (200, 401) | (401, 200)), "old {old}, new {new}");
            assert!(status(heard) != 204 || new == 200, "what was acknowledged is done");
            let again = status(&post(server, "/auth/reset-password", &reset));
            assert_eq!(again, if new == 200 { 410 } else { 204 }, "the link is used up with it, and not before");
            wait("the person is told", || (mails(folder, "password was changed") == 1).then_some(()));
        },
    );
}

#[test]
fn f02_a_request_with_a_key_happens_once_and_its_key_is_free_or_answered_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    member(&server, &[folder.path()], EMAIL);
    let access = text(&login(&server, EMAIL, PASSWORD).unwrap().1["accessToken"]);
    drop(server);
    let make = |server: &Server| post_once(server, "once", "/org", &access, &json!({ "name": "Once" }));
    before(folder.path()).sweep(make, |_, server, heard| {
        let again = make(server);
        assert_eq!(status(&again), 200, "{again:?} after {heard:?}");
        if let Some((200, first)) = heard {
            assert_eq!(*first, again.unwrap().1, "the first answer");
        }
        let list = ask(server, "GET", "/user/orgs", &access, &Value::Null).unwrap().1;
        assert_eq!(list["orgs"].as_array().unwrap().len(), 1, "made once: {list}");
    });
}

#[test]
fn f02_a_refreshed_session_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    member(&server, &[folder.path()], EMAIL);
    let (_, person) = login(&server, EMAIL, PASSWORD).unwrap();
    drop(server);
    let token = json!({ "refreshToken": person["refreshToken"] });
    before(folder.path()).sweep(
        |server| post(server, "/auth/refresh", &token),
        |_, server, heard| {
            let next = match heard {
                Some((200, turned)) => turned.clone(),
                // Who was not answered asks again with what they have.
                _ => post(server, "/auth/refresh", &token).filter(|(status, _)| *status == 200).expect("a retry").1,
            };
            let next = json!({ "refreshToken": next["refreshToken"] });
            assert_eq!(status(&post(server, "/auth/refresh", &next)), 200);
        },
    );
}

#[test]
fn f02_an_invitation_makes_a_member_or_stays_open() {
    const GUEST: &str = "bob@example.com";
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    let owner = owner(&server, &[folder.path()], EMAIL);
    let members = format!("/org/{}/members", owner.org);
    well(people::ask(&server, "POST", &members, &owner.access, &json!({ "email": GUEST, "role": "member" })));
    let token = token_in(&mail_in(&[folder.path()], GUEST, "?token="));
    drop(server);
    let accept = json!({ "token": token, "name": "Bob", "password": NEW });
    before(folder.path()).sweep(
        |server| post(server, "/auth/accept-invite", &accept),
        |_, server, heard| {
            let is_in = |server| status(&login(server, GUEST, NEW)) == 200;
            let was_in = is_in(server);
            assert!(status(heard) != 200 || was_in, "what was acknowledged is done");
            let again = status(&post(server, "/auth/accept-invite", &accept));
            assert_eq!(again, if was_in { 410 } else { 200 }, "the invitation is used up with it, and not before");
            assert!(is_in(server));
            let list = ask(server, "GET", &members, &owner.access, &Value::Null).unwrap().1;
            assert_eq!(list["members"].as_array().unwrap().len(), 2, "each once: {list}");
        },
    );
}

#[test]
fn f02_what_is_signed_with_a_new_secret_is_signed_with_the_old_one_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    let owner = owner(&server, &[folder.path()], EMAIL);
    let receiver = Receiver::start(Duration::ZERO);
    let hook = json!({ "url": receiver.url, "events": ["user.created"] });
    let made = well(people::ask(&server, "POST", &owner.hooks(), &owner.access, &hook));
    let (path, old) = (format!("{}/{}", owner.hooks(), text(&made["id"])), text(&made["secret"]));
    drop(server);
    before(folder.path()).sweep(
        |server| ask(server, "PATCH", &path, &owner.access, &json!({ "rotateSecret": true })),
        |_, server, heard| {
            let shown = ask(server, "GET", &path, &owner.access, &Value::Null).unwrap().1;
            assert!(status(heard) != 200 || shown["rotationEndsAt"].is_string(), "what was acknowledged is done");
            receiver.all().clear();
            let test = json!({ "event": "user.created" });
            assert_eq!(status(&ask(server, "POST", &format!("{path}/test"), &owner.access, &test)), 200);
            let Came { signature, body, at } = wait("a delivery", || receiver.all().pop());
            assert_eq!(verify_webhook(&signature, &body, &old, at), Ok(()), "{shown}");
            if let Some((200, rotated)) = heard {
                assert_eq!(verify_webhook(&signature, &body, &text(&rotated["secret"]), at), Ok(()));
            }
        },
    );
}

#[test]
fn f02_an_organization_goes_with_all_it_has_or_stays() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    let owner = owner(&server, &[folder.path()], EMAIL);
    let key = json!({ "type": "secret", "environment": "live" });
    let key = text(&well(people::ask(&server, "POST", &owner.keys(), &owner.access, &key))["value"]);
    drop(server);
    let org = format!("/org/{}", owner.org);
    before(folder.path()).sweep(
        |server| ask(server, "DELETE", &org, &owner.access, &Value::Null),
        |_, server, heard| {
            let see = |path: &str| status(&ask(server, "GET", path, &owner.access, &Value::Null));
            let left = (see(&org), see(&format!("/apps/{}", owner.app)), with_key(server, &key));
            assert!(matches!(left, (200, 200, 200) | (404, 404, 401)), "{left:?}");
            assert!(status(heard) != 204 || left.0 == 404, "what was acknowledged is done");
        },
    );
}
