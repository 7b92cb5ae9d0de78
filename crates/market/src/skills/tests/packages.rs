//! Packages that attack the reader, and `SKILL.md` beside the reference implementation.
use super::actors::*;

/// One entry of a tar with any name and type.
fn entry(name: &[u8], kind: u8, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes()[..name.len().min(100)].copy_from_slice(&name[..name.len().min(100)]);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.as_mut_bytes()[156] = kind;
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().div_ceil(512) * 512, 0);
    bytes
}

fn with(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = entry(b"SKILL.md", b'0', skill_md("pdf-tools", "1.0.0", "Reads.", "x").as_bytes());
    bytes.extend(entries.concat());
    bytes.resize(bytes.len() + 1024, 0);
    gzip(&bytes)
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let length = (rest.len() + 1..rest.len() + 9).find(|n| n.to_string().len() + rest.len() == *n).unwrap();
        text += &length.to_string();
        text += &rest;
    }
    entry(b"PaxHeaders/x", b'x', text.as_bytes())
}

#[tokio::test]
async fn m19_every_bad_package_is_refused_as_a_whole() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    org(&t, &ada, "acme").await;
    let joined = |parts: &[Vec<u8>]| parts.concat();
    let zeros = vec![0_u8; 19 << 20];
    let mut two = with(&[]);
    two.extend(with(&[]));
    let mut tail = with(&[]);
    tail.extend(b"more");
    let whole = with(&[]);
    let many: Vec<Vec<u8>> = (0..1001).map(|n| entry(format!("f{n}").as_bytes(), b'0', b"")).collect();
    let good = skill_md("pdf-tools", "1.0.0", "Reads.", "x");
    for (what, package) in [
        ("not gzip", b"none".to_vec()),
        ("empty", vec![]),
        ("parent", with(&[entry(b"../x", b'0', b"x")])),
        ("inner parent", with(&[entry(b"a/../../x", b'0', b"x")])),
        ("absolute", with(&[entry(b"/etc/x", b'0', b"x")])),
        ("backslash", with(&[entry(b"a\\b", b'0', b"x")])),
        ("symbolic link", with(&[entry(b"x", b'2', b"")])),
        ("hard link", with(&[entry(b"x", b'1', b"")])),
        ("device", with(&[entry(b"x", b'3', b"")])),
        ("pipe", with(&[entry(b"x", b'6', b"")])),
        ("sparse", with(&[entry(b"x", b'S', b"")])),
        ("pax path", with(&[joined(&[pax(&[("path", "other.md")]), entry(b"x.md", b'0', b"x")])])),
        ("pax size", with(&[joined(&[pax(&[("size", "3")]), entry(b"x.md", b'0', b"xx")])])),
        ("pax sparse", with(&[joined(&[pax(&[("GNU.sparse.major", "1")]), entry(b"x.md", b'0', b"x")])])),
        ("duplicate", with(&[entry(b"x", b'0', b"1"), entry(b"x", b'0', b"2")])),
        ("case twin", with(&[entry(b"X", b'0', b"1"), entry(b"x", b'0', b"2")])),
        ("skill.md beside SKILL.md", with(&[entry(b"skill.md", b'0', b"1")])),
        ("unicode name", with(&[entry("\u{440}df.md".as_bytes(), b'0', b"1")])),
        ("control name", with(&[entry(b"a\x01b", b'0', b"1")])),
        ("long name", with(&[entry("a/".repeat(49).as_bytes(), b'0', b"1")])),
        ("deep name", with(&[entry(b"a/b/c/d/e/f/g/h/i/j", b'0', b"1")])),
        ("file as folder", with(&[entry(b"a", b'0', b"1"), entry(b"a/b", b'0', b"1")])),
        (
            "bomb",
            packed(&[("SKILL.md", good.as_bytes()), ("zeros", &zeros[..2 << 20]), ("zeros2", &zeros[..2 << 20])]),
        ),
        ("large file", packed(&[("SKILL.md", good.as_bytes()), ("zeros", &zeros[..=(2 << 20)])])),
        ("many files", with(&many)),
        ("truncated", whole[..whole.len() - 20].to_vec()),
        ("two members", two),
        ("bytes after it", tail),
        ("no SKILL.md", packed(&[("README.md", b"x")])),
        ("skill.md alone", packed(&[("skill.md", good.as_bytes())])),
        ("two folders", packed(&[("pdf-tools/SKILL.md", good.as_bytes()), ("b/x", b"x")])),
    ] {
        let refused = publish(&t, &ada, "?namespace=acme", package).await;
        assert_eq!(refused.refusal(), (400, "invalid_package"), "{what}: {}", refused.text);
    }
    let other = publish(&t, &ada, "?namespace=acme", packed(&[("other/SKILL.md", good.as_bytes())])).await;
    assert_eq!((other.refusal(), &other.body["errors"][0]["code"]), ((400, "invalid_skill"), &json!("other_folder")));
    let noise: Vec<u8> = (0..6_u32 << 20).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
    let large = publish(&t, &ada, "?namespace=acme", noise).await;
    assert_eq!(large.status, 413, "{}", large.text);
    assert_eq!(objects(&t), 0, "nothing is stored");
    for table in ["SELECT CAST(COUNT(*) AS BIGINT) FROM skill", "SELECT CAST(COUNT(*) AS BIGINT) FROM skill_object"] {
        assert_eq!(count(&t, table).await, 0, "{table}");
    }
    // A folder named like the skill, a long name in PAX, and a dotfile are fine.
    let long = format!("pdf-tools/{}", "a".repeat(120));
    let mut bytes = entry(b"pdf-tools/SKILL.md", b'0', good.as_bytes());
    bytes.extend(pax(&[("path", &long), ("mtime", "1.5")]));
    bytes.extend(entry(&long.as_bytes()[..100], b'0', b"x"));
    bytes.extend(entry(b"pdf-tools/.gitignore", b'0', b"x"));
    bytes.resize(bytes.len() + 1024, 0);
    let good = publish(&t, &ada, "?namespace=acme", gzip(&bytes)).await;
    assert_eq!(good.status, 200, "{}", good.text);
    let paths: Vec<&str> =
        good.body["version"]["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths[..2], [".gitignore", "SKILL.md"]);
    t.run_jobs().await;
    t.finish().await;
}

/// Fixtures: a name, the content of `SKILL.md`, and the difference from the reference implementation, if there is one.
fn fixtures() -> Vec<(&'static str, String, Option<&'static str>)> {
    let field = |more: &str| format!("---\nname: pdf-tools\ndescription: Reads.\n{more}---\n\n# Body\n");
    let named = |name: &str| format!("---\nname: {name}\ndescription: Reads.\n---\n");
    vec![
        ("plain", field(""), None),
        (
            "every field",
            field(
                "license: MIT\ncompatibility: Needs Python\nallowed-tools: Read Bash(git:*)\nmetadata:\n  version: \"1.0.0\"\n  author: acme\n",
            ),
            None,
        ),
        ("crlf", field("").replace('\n', "\r\n"), None),
        ("no front matter", "# Hello\n".into(), None),
        ("no end", "---\nname: pdf-tools\ndescription: x\n".into(), None),
        ("empty file", String::new(), None),
        ("empty front matter", "---\n---\n".into(), None),
        ("byte order mark", format!("\u{feff}{}", field("")), None),
        ("a list", "---\n- a\n- b\n---\n".into(), None),
        ("a text", "---\nhello\n---\n".into(), None),
        ("no name", "---\ndescription: x\n---\n".into(), None),
        ("no description", "---\nname: pdf-tools\n---\n".into(), None),
        ("empty name", "---\nname:\ndescription: x\n---\n".into(), None),
        ("empty description", "---\nname: pdf-tools\ndescription:\n---\n".into(), None),
        ("blank description", "---\nname: pdf-tools\ndescription: \"  \"\n---\n".into(), None),
        ("upper case", named("Pdf-tools"), None),
        ("leading hyphen", named("-pdf"), None),
        ("trailing hyphen", named("pdf-"), None),
        ("two hyphens", named("pdf--tools"), None),
        ("underscore", named("pdf_tools"), None),
        ("space", named("pdf tools"), None),
        ("dot", named("pdf.tools"), None),
        ("64 letters", named(&"a".repeat(64)), None),
        ("65 letters", named(&"a".repeat(65)), None),
        ("digits", named("123"), None),
        ("description of 1024", field("").replace("Reads.", &"x".repeat(1024)), None),
        ("description of 1025", field("").replace("Reads.", &"x".repeat(1025)), None),
        ("description of 1024 wide letters", field("").replace("Reads.", &"\u{e9}".repeat(1024)), None),
        ("compatibility of 500", field(&format!("compatibility: {}\n", "x".repeat(500))), None),
        ("compatibility of 501", field(&format!("compatibility: {}\n", "x".repeat(501))), None),
        ("compatibility list", field("compatibility:\n  - a\n"), None),
        ("unknown field", field("version: 1.0.0\n"), None),
        ("twice", field("name: other\n"), None),
        ("flow map", field("metadata: {version: 1.0.0}\n"), None),
        ("flow list", field("allowed-tools: [Read]\n"), None),
        ("anchor", field("license: &a MIT\ncompatibility: *a\n"), None),
        ("tag", field("license: !!str MIT\n"), None),
        ("block text", field("license: |\n  MIT\n  more\n"), None),
        ("folded text", field("compatibility: >\n  a\n  b\n"), None),
        ("quoted", field("license: \"M\\u0049T\"\n"), None),
        ("comment", field("# a comment\n"), None),
        ("metadata text", field("metadata: x\n"), None),
        ("nested metadata", field("metadata:\n  a:\n    b: c\n"), None),
        ("tools list", field("allowed-tools:\n  - Read\n  - Write\n"), None),
        ("list of names", "---\nname:\n  - a\ndescription: x\n---\n".into(), None),
        ("bad yaml", field("license: \"open\n"), None),
        ("colon in text", field("").replace("Reads.", "Reads: files"), None),
        ("tab", field("metadata:\n\tversion: 1\n"), None),
        ("cyrillic", named("\u{440}\u{434}\u{444}"), Some("names are ASCII here")),
        ("umlaut", named("gr\u{f6}\u{df}e"), Some("names are ASCII here")),
        ("full width", named("\u{ff41}\u{ff42}"), Some("names are ASCII here")),
        ("dashes in text", field("").replace("Reads.", "a --- b"), Some("it cuts the front matter at any ---")),
        ("dashes in a comment", field("# --- x\n"), Some("it cuts the front matter at any ---")),
        (
            "no line break",
            format!("---name: pdf-tools\n{}", "description: x\n---\n"),
            Some("it cuts the front matter at any ---"),
        ),
        (
            "long end",
            field("").replace("---\n\n# Body", "-----\n\n# Body"),
            Some("it cuts the front matter at any ---"),
        ),
        ("tools map", field("allowed-tools:\n  a: b\n"), Some("tools are texts here")),
        ("license list", field("license:\n  - MIT\n"), Some("a license is a text here")),
    ]
}

/// What skills-ref 0.1.1 says of a folder: how many errors.
fn reference(python: &str, folder: &std::path::Path) -> usize {
    let program = "import sys, pathlib, skills_ref\nprint(len(skills_ref.validate(pathlib.Path(sys.argv[1]))))";
    let run = std::process::Command::new(python).args(["-c", program]).arg(folder).output().expect("Python");
    // It crashes where it cannot decode; that is no acceptance either.
    String::from_utf8_lossy(&run.stdout).trim().parse().unwrap_or(1)
}

#[tokio::test]
async fn m20_the_reference_implementation_agrees_but_for_the_listed_differences() {
    let Ok(python) = std::env::var("TEST_PYTHON") else {
        // `scripts/test` sets it; the rules themselves are tested in the crate `skillfile`.
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = vec![];
    for (number, (what, text, difference)) in fixtures().into_iter().enumerate() {
        let ours = skillfile::read(text.as_bytes());
        let name = text
            .lines()
            .find_map(|line| line.trim_start_matches('-').strip_prefix("name:"))
            .unwrap_or("x")
            .trim()
            .to_owned();
        let place = folder.path().join(number.to_string()).join(if name.is_empty() { "x" } else { &name });
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("SKILL.md"), &text).unwrap();
        let theirs = reference(&python, &place) == 0;
        match difference {
            None if ours.is_ok() != theirs => wrong.push(format!("{what}: ours {ours:?}, theirs {theirs}")),
            Some(why) if ours.is_ok() => wrong.push(format!("{what}: taken, although {why}")),
            Some(_) if !theirs => wrong.push(format!("{what}: no difference")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
