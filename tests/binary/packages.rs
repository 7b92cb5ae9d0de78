//! Packages of a release (`scripts/dist`), and looking for a newer one (`janua update --check`).
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use serde_json::Value;

use crate::support::{JANUA, janua};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// What a program prints; it must succeed.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_binary_becomes_packages_with_checksums_and_a_parts_list() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (binary, out) = (folder.path().join("janua"), folder.path().join("dist"));
    // Without what debuggers read it is a tenth as large.
    printed(Command::new("strip").args(["--strip-all", "-o"]).arg(&binary).arg(JANUA));
    let version = env!("CARGO_PKG_VERSION");
    let mut dist = Command::new(repository().join("scripts/dist"));
    dist.arg("--binary").arg(&binary).arg("--out").arg(&out).args([
        "--target",
        "x86_64-unknown-linux-gnu",
        "--quick",
    ]);
    let said = printed(&mut dist);
    assert!(said.contains("it needs glibc 2."), "the least version is said: {said}");
    assert!(said.contains("no image folder"), "an image of it alone would not start: {said}");
    let checked = printed(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&out));
    assert_eq!(checked.lines().filter(|line| line.ends_with(": OK")).count(), 3, "{checked}");

    let deb = out.join(format!("janua_{version}_amd64.deb"));
    let fields = printed(Command::new("dpkg-deb").arg("--field").arg(&deb));
    for line in ["Package: janua", &format!("Version: {version}"), "Architecture: amd64", "libc6 (>= 2."] {
        assert!(fields.contains(line), "{line} in {fields}");
    }
    let contents = printed(Command::new("dpkg-deb").arg("--contents").arg(&deb));
    for (mode, path) in [
        ("-rwxr-xr-x root/root", "./usr/bin/janua"),
        ("-rw-r--r-- root/root", "./lib/systemd/system/janua.service"),
        ("-rw-r----- root/root", "./etc/janua/janua.toml"),
        ("-rw-r--r-- root/root", "./usr/share/doc/janua/copyright"),
        ("-rw-r--r-- root/root", "./usr/share/doc/janua/THIRD-PARTY-NOTICES.txt.gz"),
    ] {
        let is_there = contents.lines().any(|line| line.starts_with(mode) && line.ends_with(path));
        assert!(is_there, "{mode} {path} in\n{contents}");
    }
    assert!(!contents.contains("./var/"), "the data folder is systemd's, and is never deleted by the package");
    let (root, control) = (folder.path().join("root"), folder.path().join("control"));
    printed(Command::new("dpkg-deb").arg("--extract").arg(&deb).arg(&root));
    printed(Command::new("dpkg-deb").arg("--control").arg(&deb).arg(&control));
    assert_eq!(fs::read_to_string(control.join("conffiles")).unwrap(), "/etc/janua/janua.toml\n");
    for script in ["postinst", "prerm", "postrm"] {
        printed(Command::new("sh").arg("-n").arg(control.join(script)));
        let text = fs::read_to_string(control.join(script)).unwrap();
        let starts =
            ["systemctl start", "systemctl --quiet start", "systemctl restart janua\n", "enable --now janua\n"];
        assert!(!starts.iter().any(|start| text.contains(start)), "{script} starts nothing");
    }

    // The settings are read, and the unit names the program and the file of the package.
    let settings = root.join("etc/janua/janua.toml");
    let mut effective = janua(folder.path(), &["config", "--effective", "--config"]);
    assert!(printed(effective.arg(&settings)).contains("127.0.0.1:8080"));
    let unit = fs::read_to_string(root.join("lib/systemd/system/janua.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/janua serve --config /etc/janua/janua.toml\n"), "{unit}");
    assert!(unit.contains("EnvironmentFile=-/etc/janua/janua.env"), "the file may be missing: {unit}");
    if Command::new("systemd-analyze").arg("--version").output().is_ok() {
        let path = folder.path().join("janua.service");
        fs::write(&path, unit.replace("/usr/bin/janua", JANUA)).unwrap();
        let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success() && !said.contains("janua.service:"), "{said}");
    }

    let bom = fs::read_to_string(out.join(format!("janua-{version}.cdx.json"))).unwrap();
    let bom: Value = serde_json::from_str(&bom).unwrap();
    assert_eq!((bom["bomFormat"].as_str(), bom["specVersion"].as_str()), (Some("CycloneDX"), Some("1.6")));
    let parts = bom["components"].as_array().unwrap();
    let find = |name: &str| parts.iter().find(|part| part["name"] == name);
    let rustls = find("rustls").expect("a library of the binary");
    assert!(rustls["purl"].as_str().unwrap().starts_with("pkg:cargo/rustls@"), "{rustls}");
    assert_eq!(rustls["hashes"][0]["content"].as_str().map(str::len), Some(64), "{rustls}");
    assert!(rustls["licenses"][0]["expression"].is_string(), "{rustls}");
    assert!(find("openidconnect").is_none(), "only tests need it");
    // Every library of the list is named among the notices, with a text that its license asks for.
    let notices =
        printed(Command::new("gzip").args(["-dc"]).arg(root.join("usr/share/doc/janua/THIRD-PARTY-NOTICES.txt.gz")));
    for part in parts.iter().filter(|part| part["hashes"].is_array()) {
        let (name, version) = (part["name"].as_str().unwrap(), part["version"].as_str().unwrap());
        let is_free = ["CC0-1.0", "0BSD", "MIT-0", "Unlicense"];
        let licence = part["licenses"][0]["expression"].as_str().unwrap();
        let is_named = notices.contains(&format!("{name} {version}"));
        assert!(is_named || is_free.iter().any(|free| licence.contains(free)), "{name} {version}, {licence}");
    }
    assert!(notices.contains("aws-lc-sys"), "libraries in C come with the crate that builds them");
    let known: Vec<&Value> =
        parts.iter().map(|part| &part["bom-ref"]).chain([&bom["metadata"]["component"]["bom-ref"]]).collect();
    for needs in bom["dependencies"].as_array().unwrap() {
        let all = needs["dependsOn"].as_array().unwrap().iter().chain([&needs["ref"]]);
        assert!(all.into_iter().all(|one| known.contains(&one)), "{needs}");
    }

    let listed =
        printed(Command::new("tar").arg("-tzf").arg(out.join(format!("janua-{version}-linux-amd64.tar.gz"))));
    for file in ["janua", "LICENSE", "THIRD-PARTY-NOTICES.txt", "deploy/janua.service"] {
        assert!(listed.contains(&format!("janua-{version}-linux-amd64/{file}\n")), "{file} in {listed}");
    }
}

/// A static program with glibc in place of the binary: it says the version, and knows nothing else.
fn static_program(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("janua.c"), folder.join("janua"));
    fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"janua 9.8.7\"); }\n").unwrap();
    printed(Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source));
    program
}

#[test]
fn a_static_binary_needs_no_library_and_gets_a_folder_for_an_image() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (binary, out) = (static_program(folder.path()), folder.path().join("dist"));
    let dist = |binary: &Path| {
        let mut dist = Command::new(repository().join("scripts/dist"));
        dist.arg("--binary").arg(binary).arg("--out").arg(&out).arg("--quick");
        dist
    };
    let said = printed(&mut dist(&binary));
    assert!(said.contains("static: it needs no C library"), "{said}");
    for file in ["janua", "Containerfile", "ca-certificates.crt", "data", "LICENSE", "THIRD-PARTY-NOTICES.txt"] {
        assert!(out.join("image").join(file).exists(), "{file} in the image folder");
    }
    let is_deb = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    let deb = fs::read_dir(&out).unwrap().map(|file| file.unwrap().path()).find(is_deb).unwrap();
    let depends = printed(Command::new("dpkg-deb").arg("--field").arg(&deb).arg("Depends"));
    assert_eq!(depends.trim(), "passwd");
    let bom: Value = serde_json::from_slice(&fs::read(out.join("janua-9.8.7.cdx.json")).unwrap()).unwrap();
    let mut parts = bom["components"].as_array().unwrap().iter();
    let glibc = parts.find(|part| part["name"] == "glibc").expect("the C library in it is one of its parts");
    assert_eq!(glibc["licenses"][0]["expression"], "LGPL-2.1-or-later");
    let mut needs = bom["dependencies"].as_array().unwrap().iter();
    assert!(needs.any(|one| one["dependsOn"].as_array().unwrap().contains(&glibc["bom-ref"])));

    let script = folder.path().join("script");
    fs::write(&script, "#!/bin/sh\necho janua 9.8.7\n").unwrap();
    printed(Command::new("chmod").arg("+x").arg(&script));
    let refused = dist(&script).output().unwrap();
    assert!(!refused.status.success(), "what cannot be looked into is not packaged as static");
}

/// Built by a published program from the folder alone, and run: without a service of its own it needs root.
#[test]
fn an_image_is_built_from_its_folder_and_runs_the_binary_as_a_user_without_privileges() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut dist = Command::new(repository().join("scripts/dist"));
    let binary = static_program(folder.path());
    printed(dist.arg("--binary").arg(binary).arg("--out").arg(folder.path()).arg("--quick"));
    if !rustix::process::geteuid().is_root() {
        return println!("no image was built: buildah asks for root, or for user namespaces of yours");
    }
    let buildah = |arguments: &[&str]| {
        let mut command = Command::new("buildah");
        command.args(["--storage-driver", "vfs", "--root"]).arg(folder.path().join("images"));
        command.arg("--runroot").arg(folder.path().join("running")).args(arguments).current_dir(folder.path());
        printed(&mut command)
    };
    buildah(&["build", "--isolation", "chroot", "--tag", "janua", "image"]);
    let image: Value = serde_json::from_str(&buildah(&["inspect", "--type", "image", "janua"])).unwrap();
    let config = &image["OCIv1"]["config"];
    assert_eq!((&config["User"], &config["WorkingDir"]), (&"10001:10001".into(), &"/data".into()), "{config}");
    assert_eq!((&config["Entrypoint"][0], &config["Cmd"][0]), (&"/janua".into(), &"serve".into()), "{config}");
    buildah(&["from", "--name", "one", "janua"]);
    assert_eq!(buildah(&["run", "--isolation", "chroot", "one", "/janua", "--version"]), "janua 9.8.7\n");
    buildah(&["rm", "one"]);
}

/// A server that answers one text, over and over; its URL.
fn answering(status: &str, body: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/release.json", listener.local_addr().unwrap());
    let answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

/// How `janua update --check` ends, and what it says.
fn check(url: &str, more: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = janua(folder.path(), &["update", "--check"]);
    command.args(more);
    if !url.is_empty() {
        command.env("JANUA_UPDATE_URL", url);
    }
    let output = command.output().unwrap();
    assert!(!folder.path().join("data").exists(), "it writes nothing");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), said)
}

#[test]
fn a_newer_version_is_named_and_never_installed() {
    let release = |version: &str| {
        let digest = "5e".repeat(32);
        format!(r#"{{"version":"{version}","url":"https://example.com/janua.tar.gz","sha256":"{digest}"}}"#)
    };
    let (code, said) = check("", &[]);
    assert_eq!(code, 1, "no server is asked unless one is set: {said}");
    assert!(said.contains("update_url is not set"), "{said}");

    let newer = answering("200 OK", &release("99.1.0"));
    let (code, said) = check(&newer, &[]);
    assert_eq!(code, 10, "{said}");
    assert!(
        said.contains("Janua 99.1.0 is available") && said.contains("https://example.com/janua.tar.gz"),
        "{said}"
    );
    let (code, said) = check(&newer, &["--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, said["isNewer"].as_bool(), said["newest"].as_str()), (10, Some(true), Some("99.1.0")));

    for version in [env!("CARGO_PKG_VERSION"), "0.0.1", &format!("{}-rc.1", env!("CARGO_PKG_VERSION"))] {
        let (code, said) = check(&answering("200 OK", &release(version)), &[]);
        assert_eq!(code, 0, "{version}: {said}");
        assert!(said.contains("is the newest version"), "{said}");
    }

    let wrong = release("99.1.0").replace("5e5e", "xx");
    let unsafe_url = release("99.1.0").replace("https:", "http:");
    for (url, why) in [
        (answering("404 Not Found", "{}"), "404"),
        (answering("302 Found", ""), "302"),
        (answering("200 OK", "<html>"), "not a release document"),
        (answering("200 OK", &wrong), "sha256 must be"),
        (answering("200 OK", &unsafe_url), "url must begin with https"),
        (answering("200 OK", &"x".repeat(70_000)), "longer than"),
        ("http://updates.example.com/release.json".to_owned(), "must begin with https"),
    ] {
        let (code, said) = check(&url, &[]);
        assert_eq!(code, 1, "{why}: {said}");
        assert!(said.contains(why), "{why}: {said}");
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(janua(folder.path(), &["update"]).output().unwrap().status.code(), Some(2), "--check is asked for");
}
