//! `janua admin`: rescue from the shell while the server runs.
use std::path::Path;

use crate::support::{
    Server, janua,
    people::{PASSWORD, ask, login, member, text, well},
    run,
};

const ADA: &str = "ada@example.com";

fn admin(folder: &Path, arguments: &[&str]) -> (bool, String) {
    run(janua(folder, &[&["admin"], arguments].concat()))
}

#[test]
fn a_person_is_made_an_owner_disabled_and_enabled_beside_the_running_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    for email in [ADA, "bob@example.com"] {
        member(&server, &[folder.path()], email);
    }
    let nothing = serde_json::Value::Null;
    let bob = text(&well(login(&server, "bob@example.com", PASSWORD))["accessToken"]);
    assert_eq!(ask(&server, "GET", "/admin/users", &bob, &nothing).0, 403);
    let (ok, said) = admin(folder.path(), &["make-owner", "ADA@example.com"]);
    assert!(ok && said.contains("Ada <ada@example.com> is a platform owner now"), "{said}");
    let (ok, said) = admin(folder.path(), &["owners"]);
    assert!(ok && said.contains(ADA), "{said}");
    let ada = text(&well(login(&server, ADA, PASSWORD))["accessToken"]);
    assert_eq!(ask(&server, "GET", "/admin/users", &ada, &nothing).0, 200);
    let (ok, said) = admin(folder.path(), &["user", "disable", ADA]);
    assert!(!ok && said.contains("last platform owner"), "{said}");
    let (ok, said) = admin(folder.path(), &["remove-owner", ADA]);
    assert!(!ok && said.contains("last platform owner"), "{said}");

    let (ok, said) = admin(folder.path(), &["user", "disable", "bob@example.com"]);
    assert!(ok && said.contains("is disabled; all sessions were ended"), "{said}");
    let refused = login(&server, "bob@example.com", PASSWORD);
    assert_eq!((refused.0, text(&refused.1["code"])), (403, "account_disabled".to_owned()));
    let (ok, said) = admin(folder.path(), &["user", "show", "bob@example.com"]);
    assert!(ok && said.contains("ACCOUNT_DISABLED  by shell"), "{said}");
    let (ok, said) = admin(folder.path(), &["user", "enable", "bob@example.com"]);
    assert!(ok && said.contains("is enabled again"), "{said}");
    well(login(&server, "bob@example.com", PASSWORD));
    for act in ["reset-factors", "sessions-end", "require-password"] {
        let (ok, said) = admin(folder.path(), &["user", act, "bob@example.com"]);
        assert!(ok && said.contains("bob@example.com"), "{act}: {said}");
    }
    assert_eq!(login(&server, "bob@example.com", PASSWORD).0, 401, "a new password is required");
    let (ok, said) = admin(folder.path(), &["user", "show", "nobody@example.com"]);
    assert!(!ok && said.contains("no account has the email nobody@example.com"), "{said}");

    let (ok, said) = admin(folder.path(), &["owner-link"]);
    assert!(ok && said.contains("/first-owner?token="), "{said}");
    let token = said.split("token=").nth(1).unwrap().trim();
    assert_eq!(server.get(&format!("/first-owner?token={token}")).0, 200, "it works beside an owner");
    let (_, again) = admin(folder.path(), &["owner-link"]);
    assert_ne!(again, said);
    assert_eq!(server.get(&format!("/first-owner?token={token}")).0, 410, "the older one no longer does");
}
