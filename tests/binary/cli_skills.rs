//! `janua skills`, `analytics` and `trace` against a running server.
use std::fs;

use serde_json::{Value, json};

use crate::{
    cli::Machine,
    support::{
        Server,
        people::{PASSWORD, login, member, owner, text, well},
    },
};

#[test]
fn a_skill_is_created_checked_published_installed_verified_and_yanked() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), &[]);
    let ada = owner(&server, &[folder.path()], "ada@example.com");
    let machine = Machine::with_token(&server, &ada.access);
    let skill = machine.work().join("pdf-tools");

    machine.run(&["skills", "init", "pdf-tools", "--description", "Reads PDF forms."]).well();
    assert_eq!(machine.run(&["skills", "init", "pdf-tools"]).code, 2, "nothing is overwritten");
    assert_eq!(machine.run(&["skills", "init", "PDF"]).code, 2);
    let checked = machine.well(&["skills", "validate", "pdf-tools"]);
    assert_eq!(
        (&checked["name"], &checked["version"], &checked["files"]),
        (&json!("pdf-tools"), &json!("0.1.0"), &json!(1))
    );
    let good = fs::read_to_string(skill.join("SKILL.md")).unwrap();
    fs::write(skill.join("SKILL.md"), good.replace("description:", "descripton:")).unwrap();
    let wrong = machine.run(&["skills", "validate", "pdf-tools", "--json"]);
    assert_eq!(wrong.code, 1);
    let said: Value = serde_json::from_str(&wrong.err).unwrap();
    let codes: Vec<&str> =
        said["error"]["errors"].as_array().unwrap().iter().filter_map(|one| one["code"].as_str()).collect();
    assert_eq!(codes, ["unknown_field", "required"], "{said}");
    assert_eq!(
        machine.run(&["skills", "publish", "pdf-tools", "--org", "Example"]).code,
        1,
        "nothing invalid is sent"
    );
    fs::write(skill.join("SKILL.md"), &good).unwrap();
    fs::create_dir(skill.join("references")).unwrap();
    fs::write(skill.join("references/forms.md"), "# Forms\n").unwrap();

    let first = machine.well(&["skills", "publish", "pdf-tools", "--org", "Example"]);
    let slug = &text(&first["skill"]["slug"]);
    assert!(slug.starts_with("example") && slug.ends_with(".pdf-tools"), "{slug}");
    assert_eq!(first["version"]["version"], "0.1.0");
    let same = machine.run(&["skills", "publish", "pdf-tools", "--org", "Example"]).well();
    assert!(same.out.contains(&format!("{slug} 0.1.0 is published.")), "the same bytes again: {}", same.out);
    fs::write(skill.join("references/forms.md"), "# Other forms\n").unwrap();
    let taken = machine.run(&["skills", "publish", "pdf-tools", "--org", "Example"]);
    assert_eq!(taken.code, 1);
    assert!(taken.err.contains("with other content"), "{}", taken.err);
    fs::write(skill.join("SKILL.md"), good.replace("0.1.0", "0.2.0")).unwrap();
    let second = machine.well(&["skills", "publish", "pdf-tools", "--org", "Example"]);
    assert_eq!(second["version"]["version"], "0.2.0");

    // Somebody else installs it.
    member(&server, &[folder.path()], "zoe@example.com");
    let zoe = text(&well(login(&server, "zoe@example.com", PASSWORD))["accessToken"]);
    let other = Machine::with_token(&server, &zoe);
    let installed = other.well(&["skills", "install", slug]);
    assert_eq!((&installed["version"], &installed["files"]), (&json!("0.2.0"), &json!(2)));
    let place = other.work().join("skills/pdf-tools");
    assert_eq!(fs::read_to_string(place.join("references/forms.md")).unwrap(), "# Other forms\n");
    assert_eq!(other.well(&["skills", "verify", "skills/pdf-tools"])["valid"], true);
    let signed_out = Machine::new(&server);
    let signed_out = signed_out.run(&["skills", "verify", place.to_str().unwrap()]).well();
    assert!(signed_out.err.contains("withdrawn is unknown"), "{}", signed_out.err);

    // The publisher takes the version back, and says so to whoever has it.
    let no_admin = other.run(&["skills", "yank", slug, "0.2.0"]);
    assert!(no_admin.code != 0, "{}", no_admin.out);
    machine.run(&["skills", "yank", slug, "0.2.0", "--reason", "Fills the wrong field."]).well();
    let yanked = other.run(&["skills", "verify", "skills/pdf-tools"]).well();
    assert!(yanked.err.contains("no longer offers"), "{}", yanked.err);
    assert_eq!(other.well(&["skills", "install", slug])["version"], "0.1.0", "the latest that is offered");
    assert_eq!(
        fs::read_to_string(place.join("references/forms.md")).unwrap(),
        "# Forms\n",
        "in the place of the other"
    );
    let named = other.well(&["skills", "install", slug, "--skill-version", "0.2.0"]);
    assert_eq!(named["version"], "0.2.0", "whoever names it still gets it");
    machine.run(&["skills", "yank", slug, "0.2.0", "--undo"]).well();
    assert_eq!(other.well(&["skills", "install", slug])["version"], "0.2.0");

    // What was changed, added or lost is named, and a signature counts for its own text alone.
    fs::write(place.join("SKILL.md"), "---\nname: pdf-tools\n---\n").unwrap();
    fs::write(place.join("extra.sh"), "true\n").unwrap();
    fs::remove_file(place.join("references/forms.md")).unwrap();
    let changed = other.run(&["skills", "verify", "skills/pdf-tools"]);
    assert_eq!(changed.code, 1);
    for part in ["SKILL.md: changed", "extra.sh: added", "references/forms.md: missing"] {
        assert!(changed.err.contains(part), "{part}: {}", changed.err);
    }
    other.run(&["skills", "install", slug]).well();
    let record = fs::read_to_string(place.join(".janua-skill.json")).unwrap();
    fs::write(place.join(".janua-skill.json"), record.replace(".pdf-tools", ".pdf-toolz")).unwrap();
    let forged = other.run(&["skills", "verify", "skills/pdf-tools"]);
    assert_eq!(forged.code, 1);
    assert!(forged.err.contains("signature is not valid"), "{}", forged.err);

    // A folder of one's own is never overwritten.
    fs::create_dir_all(other.work().join("mine/pdf-tools")).unwrap();
    assert_eq!(other.run(&["skills", "install", slug, "--into", "mine"]).code, 2);
    assert_eq!(other.run(&["skills", "install", "example.nothing"]).code, 1);
    assert_eq!(other.run(&["skills", "verify", "mine/pdf-tools"]).code, 2);
}

#[test]
fn figures_of_an_app_and_the_trace_of_a_request_are_read_from_the_command_line() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), &[("JANUA_PLATFORM_OWNERS", "ada@example.com")]);
    let ada = owner(&server, &[folder.path()], "ada@example.com");
    let machine = Machine::with_token(&server, &ada.access);

    let figures = machine.well(&["analytics", "--app", "Shop"]);
    assert_eq!(figures["appId"], ada.app.as_str());
    assert!(figures["activeUsers"]["daily"].is_i64() && figures["events"]["total"].is_i64(), "{figures}");
    let shown = machine.run(&["analytics", "--app", "Shop", "--from", "2026-01-01", "--to", "2026-01-31"]).well();
    assert!(shown.out.contains("Sign-ins") && shown.out.contains("2026-01-31"), "{}", shown.out);
    let wrong = machine.run(&["analytics", "--app", "Shop", "--from", "yesterday"]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.err.contains("from: must be a date"), "{}", wrong.err);

    let id = "trace-of-the-command-line";
    let header = format!("X-Request-Id: {id}");
    machine.run(&["api", "POST", "/org", "-f", "name=Traced", "-H", &header]).well();
    let trace = machine.well(&["trace", id]);
    let steps = trace["steps"].as_array().unwrap();
    assert_eq!((&trace["requestId"], &steps[0]["name"]), (&json!(id), &json!("POST /org")));
    assert!(steps.iter().any(|step| step["name"] == "ORG_CREATED"), "{trace}");
    let shown = machine.run(&["trace", id]).well();
    assert!(shown.out.contains("ORG_CREATED") && shown.out.contains("POST /org"), "{}", shown.out);
    assert_eq!(machine.run(&["trace", "no-such-request"]).code, 1);

    member(&server, &[folder.path()], "zoe@example.com");
    let zoe = text(&well(login(&server, "zoe@example.com", PASSWORD))["accessToken"]);
    let other = Machine::with_token(&server, &zoe);
    assert_eq!(other.run(&["trace", id]).code, 4, "for platform admins alone");
    assert_eq!(other.run(&["analytics", "--app", &ada.app]).code, 1, "an app of others is not there");
}
