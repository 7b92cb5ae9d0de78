//! Samples of code, which are files of the project that tests run. Pages show them with the values of an app in place of the
//! examples in them.
use serde_json::{Value, json};

/// One language.
struct Sample {
    id: &'static str,
    title: &'static str,
    code: &'static str,
}

macro_rules! samples {
    ($folder:literal: $($title:literal $id:literal $file:literal),+) => {
        &[$(Sample {
            id: $id,
            title: $title,
            code: include_str!(concat!("../../../../docs/samples/", $folder, "/", $file)),
        }),+]
    };
}

const QUICK_START: &[Sample] = samples!("quick-start":
    "JavaScript" "browser" "browser.html", "Node" "node" "node.mjs", "Python" "python" "python.py", "Go" "go" "go.go",
    "Rust" "rust" "rust.rs", "curl" "curl" "curl.sh");

const WEBHOOKS: &[Sample] = samples!("webhooks":
    "Node" "node" "node.mjs", "Python" "python" "python.py", "Go" "go" "go.go", "Rust" "rust" "rust.rs",
    "curl" "curl" "curl.sh");

/// What stands in the files where an app's own values belong.
const ISSUER: &str = "https://id.example.com";
const CLIENT_ID: &str = "YOUR_CLIENT_ID";
pub const REDIRECT_URL: &str = "http://localhost:3000/callback";
const ORIGIN: &str = "http://localhost:3000";

/// The code that signs a user in, with the values of an app. `redirect_url` must be plain.
pub fn quick_start(issuer: &str, client_id: &str, redirect_url: &str) -> Value {
    let origin = redirect_url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    let fill = |code: &str| {
        let filled = code.replace(ISSUER, issuer).replace(CLIENT_ID, client_id).replace(REDIRECT_URL, redirect_url);
        filled.replace(ORIGIN, &origin)
    };
    shown(QUICK_START, fill)
}

/// The code that verifies a webhook.
pub fn webhooks() -> Value {
    shown(WEBHOOKS, str::to_owned)
}

fn shown(samples: &[Sample], fill: impl Fn(&str) -> String) -> Value {
    samples.iter().map(|one| json!({ "id": one.id, "title": one.title, "code": fill(one.code) })).collect()
}

/// Whether a URL can stand between quotes of any language.
pub fn is_plain(url: &str) -> bool {
    url.chars().all(|c| c.is_ascii_alphanumeric() || ":/.-_[]".contains(c))
}
