//! Signing in through a published OpenID provider, driven as a browser would.
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
};

use kernel::{clock::Clock, config::Config, testing::TestJanua};
use reqwest::{Client, header, redirect::Policy};
use serde_json::json;
use url::Url;

use super::{actors::*, providers::*};

/// The program of the other side.
struct Peer {
    child: Child,
    url: String,
    /// Kept open: who writes into a closed pipe ends.
    _out: BufReader<ChildStdout>,
}

impl Peer {
    fn start() -> Self {
        let packages = std::env::var("TEST_NODE").unwrap_or_else(|_| {
            let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/node");
            assert!(
                std::path::Path::new(usual).exists(),
                "TEST_NODE: scripts/test sets it, scripts/setup installs it"
            );
            usual.to_owned()
        });
        let mut child = Command::new("node")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/peers/oidc.mjs"))
            .env("TEST_NODE", packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node: scripts/setup installs it");
        let mut url = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut url).unwrap();
        assert!(url.starts_with("http://"), "the provider did not start");
        Self { child, url: url.trim().to_owned(), _out: out }
    }

    /// Settings under which it is four providers.
    fn settings(&self) -> Config {
        let url = &self.url;
        let mut flags = vec![("cognito_issuer".to_owned(), url.clone()), ("cognito_domain".to_owned(), url.clone())];
        let mut parts = vec![];
        for name in ["google", "microsoft", "linkedin", "cognito"] {
            flags.push((format!("{name}_client_id"), name.to_owned()));
            flags.push((format!("{name}_client_secret"), format!("{name}-secret")));
            for (part, path) in [("authorize", "/auth"), ("token", "/token"), ("jwks", "/jwks"), ("issuer", "")] {
                parts.push(format!("{name}.{part}={url}{path}"));
            }
        }
        flags.push(("provider_endpoints".into(), parts.join(",")));
        let sections = [tenancy::PART.settings, crate::PART.settings].concat();
        Config { listen: Config::for_tests().listen, ..Config::load(None, [], flags, &sections).unwrap() }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Follows every redirect and fills in every form until the way leads out: the address it leads to.
async fn browse(start: &str, login: &str) -> Url {
    let client = Client::builder().redirect(Policy::none()).no_proxy().build().unwrap();
    let (mut jar, mut at) = (BTreeMap::<String, String>::new(), Url::parse(start).unwrap());
    let home = at.origin();
    let mut form: Option<Vec<(&str, String)>> = None;
    for _ in 0..20 {
        let cookies: Vec<_> = jar.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = match form.take() {
            Some(fields) => client.post(at.clone()).form(&fields),
            None => client.get(at.clone()),
        };
        let answer = request.header(header::COOKIE, cookies.join("; ")).send().await.unwrap();
        for line in answer.headers().get_all(header::SET_COOKIE) {
            let (name, value) = line.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
            jar.insert(name.to_owned(), value.to_owned());
        }
        if let Some(location) = answer.headers().get(header::LOCATION) {
            at = at.join(location.to_str().unwrap()).unwrap();
            if at.origin() != home {
                return at;
            }
            continue;
        }
        let page = answer.text().await.unwrap();
        let field = |name: &str| {
            let mark = format!("name=\"{name}\" value=\"");
            page.split(&mark).nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned)
        };
        let prompt = field("prompt").unwrap_or_else(|| panic!("no form on {at}:\n{page}"));
        let action = page.split("action=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        at = at.join(action).unwrap();
        form = Some(vec![("prompt", prompt), ("login", login.to_owned()), ("password", "any".to_owned())]);
    }
    panic!("the way never leads out");
}

#[tokio::test]
async fn a_real_provider_signs_people_in() {
    let peer = Peer::start();
    let t = TestJanua::start_with(peer.settings(), feature).await;
    // The provider signs with the time of the wall.
    t.advance(Clock::System.now().since(t.janua.clock.now()));
    for (provider, login, is_proven) in
        [("google", "ada", true), ("linkedin", "bob", true), ("cognito", "cleo", true), ("microsoft", "dora", false)]
    {
        let sent = begin(&t, provider).await;
        let back = browse(&sent.url, login).await;
        let got: BTreeMap<String, String> = back.query_pairs().into_owned().collect();
        assert_eq!(back.path(), format!("/sign-in/{provider}"));
        assert_eq!(got["state"], sent.state, "{back}");
        let answer = come_back(&t, provider, &sent, &got["code"]).await;
        assert_eq!((answer.status, &answer.body["isNewUser"]), (200, &json!(true)), "{provider}: {}", answer.text);
        let user = &answer.body["user"];
        assert_eq!(
            (&user["name"], &user["authProvider"]),
            (&json!(format!("{login} of the provider")), &json!(provider))
        );
        assert_eq!(user["emailVerified"], is_proven, "{provider}");
        let again = begin(&t, provider).await;
        let replayed = come_back(&t, provider, &again, &got["code"]).await;
        assert_eq!(replayed.refusal(), (400, "provider_refused"), "its codes work once");
        // A code that somebody else got does not fit our verifier and nonce.
        let (mine, other) = (begin(&t, provider).await, begin(&t, provider).await);
        let stolen: BTreeMap<String, String> = browse(&other.url, "eve").await.query_pairs().into_owned().collect();
        let injected = come_back(&t, provider, &mine, &stolen["code"]).await;
        assert!(
            matches!(injected.refusal(), (400, "provider_refused") | (401, "invalid_id_token")),
            "{}",
            injected.text
        );
    }
    t.run_jobs().await;
    t.finish().await;
}
