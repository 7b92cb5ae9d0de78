//! The sample of a site that CI deploys: its deploy step runs as it is written, with the built binary.
use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::support::{
    JANUA, Server,
    people::{ask, owner, text, well},
};

/// The script of a step of a workflow: the lines below its `run: |`, as deep as the first of them.
fn step(workflow: &str, name: &str) -> String {
    let start = workflow.find(&format!("- name: {name}\n")).unwrap_or_else(|| panic!("no step {name}"));
    let (_, lines) = workflow[start..].split_once("run: |\n").expect("a script");
    let depth = lines.len() - lines.trim_start().len();
    let is_inside = |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() >= depth;
    lines.lines().take_while(is_inside).map(str::trim_start).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_sample_site_is_deployed_by_the_step_of_its_workflow() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), &[("JANUA_EDGE_LISTEN", "127.0.0.1:0")]);
    let ada = owner(&server, &[folder.path()], "ada@example.com");
    let new = serde_json::json!({ "type": "secret", "environment": "live" });
    let key = text(&well(ask(&server, "POST", &ada.keys(), &ada.access, &new))["value"]);

    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/samples/site");
    let workflow = fs::read_to_string(sample.join("deploy.yml")).unwrap();
    let work = folder.path().join("checkout");
    fs::create_dir_all(work.join("public")).unwrap();
    fs::copy(sample.join("public/index.html"), work.join("public/index.html")).unwrap();
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(JANUA, programs.join("janua")).unwrap();
    let mut shell = Command::new("bash");
    // As the runner of the code host starts it.
    shell.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &step(&workflow, "Deploy")]);
    shell.current_dir(&work).env_clear().env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    shell.env("JANUA_URL", format!("http://{}", server.address)).env("JANUA_APP", &ada.app).env("JANUA_TOKEN", &key);
    shell.env("JANUA_CONFIG_HOME", folder.path().join("config"));
    let ran = shell.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let deployed: Value = serde_json::from_str(said.trim()).unwrap();
    assert_eq!((deployed["active"].as_bool(), deployed["files"].as_u64()), (Some(true), Some(1)), "{said}");
    for name in ["JANUA_URL", "JANUA_APP", "JANUA_TOKEN"] {
        assert!(workflow.contains(&format!("\n      {name}: ${{{{ ")), "the workflow sets {name}");
    }
    // A key that was revoked fails the run.
    shell.env("JANUA_TOKEN", "sk_live_wrong");
    assert!(!shell.output().unwrap().status.success());
}
