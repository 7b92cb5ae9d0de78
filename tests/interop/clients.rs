//! Published clients of OAuth and OpenID Connect against the running binary, with a person who signs in and says yes.
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use kernel::testing::NameServer;
use openidconnect::{
    AccessTokenHash, AuthenticationFlow, AuthorizationCode, ClientId, ClientSecret, CsrfToken, HttpRequest,
    HttpResponse, IssuerUrl, Nonce, OAuth2TokenResponse as _, PkceCodeChallenge, RedirectUrl, Scope,
    TokenResponse as _,
    core::{CoreClient, CoreProviderMetadata, CoreResponseType, CoreUserInfoClaims},
};
use serde_json::{Value, json};

use crate::support::{Server, browser::Browser, mail_with, token_in, wait};

const EMAIL: &str = "ada@example.com";
const PASSWORD: &str = "correct horse battery staple";
const REDIRECT: &str = "http://127.0.0.1:9/callback";
/// A host below a domain that an app has proven, and one below a domain that an app has added and not proven.
const PROVEN: &str = "mcp.proven.example.test";
const UNPROVEN: &str = "mcp.unproven.example.test";

/// A service with a person in it, and clients of other people's.
struct Stage {
    server: Server,
    client: Registered,
    /// An app that MCP clients bring along instead of registering.
    mcp_client: Registered,
    /// The credentials of the websites that people sign in to.
    sites: Value,
    /// Where the MCP servers listen that the client libraries bring along, one for TypeScript and one for Python.
    mcp_ports: [u16; 2],
    documents: Documents,
    folder: tempfile::TempDir,
    _names: NameServer,
}

/// An app as its owner sees it.
struct Registered {
    id: String,
    secret: String,
}

/// A process that ends with the test that needs it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A TLS server with the documents of clients that describe themselves.
struct Documents {
    port: u16,
    _server: Running,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port()
}

fn openssl(folder: &Path, arguments: &str) -> Child {
    let mut command = Command::new("openssl");
    command.current_dir(folder).args(arguments.split(' ')).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().expect("openssl runs")
}

impl Documents {
    fn start(folder: &Path) -> Self {
        let names = format!("subjectAltName=IP:127.0.0.1,DNS:{PROVEN},DNS:{UNPROVEN}");
        let made = openssl(
            folder,
            &format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 2 \
                 -subj /CN=client -addext {names} -addext basicConstraints=critical,CA:FALSE"
            ),
        )
        .wait();
        assert!(made.expect("openssl ends").success());
        let port = free_port();
        let arguments = format!("s_server -accept 127.0.0.1:{port} -cert cert.pem -key key.pem -HTTP");
        let server = Running(openssl(folder, &arguments));
        wait("the TLS server", || TcpStream::connect(("127.0.0.1", port)).ok());
        let url = format!("https://127.0.0.1:{port}/client.json");
        let document = json!({
            "client_id": url,
            "client_name": "MCP client",
            "redirect_uris": ["http://127.0.0.1/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        });
        // The server sends a file as it is, with its head.
        let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{document}");
        fs::write(folder.join("client.json"), answer).expect("a file");
        Self { port, _server: server }
    }

    fn client(&self) -> String {
        format!("https://127.0.0.1:{}/client.json", self.port)
    }
}

fn ask(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = server.visit().ask(method, path, token, &body);
    assert!(status < 300, "{method} {path}: {status} {answer}");
    serde_json::from_str(&answer).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn sign_up(server: &Server, folder: &Path, email: &str) -> String {
    let body = json!({ "email": email, "password": PASSWORD, "name": "Ada" });
    ask(server, "POST", "/auth/register", "", &body);
    let outbox = folder.join("data/outbox");
    let mail = wait("the mail", || mail_with(&outbox, &format!("To: {email}")));
    ask(server, "POST", "/auth/verify-email", "", &json!({ "token": token_in(&mail) }));
    let body = json!({ "email": email, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    text(&ask(server, "POST", "/auth/login", "", &body)["accessToken"])
}

impl Stage {
    /// One for all tests that run at the same time.
    fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Stage>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let stage = Arc::new(Self::set());
            *shared = Arc::downgrade(&stage);
            stage
        })
    }

    fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let documents = Documents::start(folder.path());
        let authority = folder.path().join("cert.pem");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut names = runtime.block_on(NameServer::start());
        let name_server = names.address().to_string();
        let settings = [
            ("JANUA_CLIENT_REGISTRATION", "on"),
            ("JANUA_DNS_SERVERS", &name_server),
            ("JANUA_WEBHOOK_ALLOW_NETS", "127.0.0.0/8"),
            ("JANUA_OUTGOING_CA", authority.to_str().unwrap()),
        ];
        let server = Server::start(folder.path(), &settings);
        sign_up(&server, folder.path(), EMAIL);
        let eve = sign_up(&server, folder.path(), "eve@example.com");
        let make = |app: &Value| {
            let id = text(&ask(&server, "POST", "/apps", &eve, app)["id"]);
            let key = json!({ "type": "secret", "environment": "live" });
            let secret = text(&ask(&server, "POST", &format!("/apps/{id}/keys"), &eve, &key)["value"]);
            Registered { id, secret }
        };
        let client = make(&json!({ "name": "Eve", "redirectUris": [REDIRECT] }));
        let redirects = ["http://127.0.0.1:8790/callback", "http://127.0.0.1:8791/callback"];
        let mcp_client = make(&json!({ "name": "MCP client", "redirectUris": redirects }));
        let add_domain = |host: &str| {
            let app = make(&json!({ "name": "Tools" })).id;
            let scopes = json!([{ "name": "mcp:tools", "description": "Run the tools" }]);
            ask(&server, "PATCH", &format!("/apps/{app}"), &eve, &json!({ "scopes": scopes }));
            let domain = json!({ "domain": host.strip_prefix("mcp.") });
            let record = ask(&server, "POST", &format!("/apps/{app}/domain"), &eve, &domain)["record"].take();
            (format!("/apps/{app}/domain/verify"), format!("{}.", text(&record["name"])), text(&record["value"]))
        };
        let ((verify, name, value), (verify_unproven, ..)) = (add_domain(PROVEN), add_domain(UNPROVEN));
        runtime.block_on(names.say(&[(&name, &value)]));
        assert_eq!(ask(&server, "POST", &verify, &eve, &Value::Null)["status"], "verified");
        assert_eq!(ask(&server, "POST", &verify_unproven, &eve, &Value::Null)["status"], "pending");
        let site = |host: &str, pages: &[&str], pkce: bool| {
            let pages: Vec<_> = pages.iter().map(|page| format!("http://{host}{page}")).collect();
            let app = make(&json!({ "name": "A website", "redirectUris": pages }));
            ask(&server, "PATCH", &format!("/apps/{}", app.id), &eve, &json!({ "requirePkce": pkce }));
            json!({ "clientId": app.id, "clientSecret": app.secret })
        };
        let page_port = free_port();
        let mut page = site(&format!("localhost:{page_port}"), &["/callback", "/silent", "/goodbye"], true);
        page["port"] = page_port.into();
        let sites = json!({
            "passport": site("127.0.0.1", &["/auth/callback"], false),
            "apache": site("127.0.0.1", &["/protected/redirect_uri", "/goodbye"], false),
            "formPost": site("127.0.0.1", &["/signin-oidc", "/signout-callback-oidc"], true),
            "singlePage": page,
        });
        let mcp_ports = [free_port(), free_port()];
        Self { server, client, mcp_client, sites, mcp_ports, documents, folder, _names: names }
    }

    fn base(&self) -> String {
        format!("http://localhost:{}", self.server.address.port())
    }

    /// Runs a client that says where its person must go, and answers what it got done.
    fn run(&self, name: &str, mut command: Command) -> Vec<String> {
        let wrong = self.folder.path().join(format!("{name}.log"));
        let errors = fs::File::create(&wrong).unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut running = Running(command.spawn().expect("the client starts"));
        let mut input = running.0.stdin.take().unwrap();
        let output = BufReader::new(running.0.stdout.take().unwrap());
        let (mut browser, mut done) = (Browser::new(&self.server), vec![]);
        for line in output.lines() {
            let line = line.unwrap();
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["open", link] => {
                    let back = browser.go_through(link, EMAIL, PASSWORD);
                    writeln!(input, "{back}").unwrap();
                }
                ["refused", link] => {
                    let back = browser.try_through(link, EMAIL, PASSWORD).unwrap_or_else(|page| {
                        assert!(page.contains("No tokens are issued for this resource."), "{page}");
                        "page".into()
                    });
                    writeln!(input, "{back}").unwrap();
                }
                ["device", link, code] => {
                    browser.approve(link, code, EMAIL, PASSWORD);
                    writeln!(input, "done").unwrap();
                }
                _ => done.push(line),
            }
        }
        let ended_well = running.0.wait().unwrap().success() && done.last().is_some_and(|line| line == "done");
        assert!(ended_well, "{name}: {done:#?}\n{}", fs::read_to_string(wrong).unwrap_or_default());
        done
    }

    /// An MCP server and its published client: on loopback, on a proven domain, and on one that is not proven. Answers what it
    /// got done at each of them.
    fn run_mcp(&self, name: &str, program: impl Fn() -> Command, port: u16) -> [usize; 3] {
        let folder = self.folder.path().to_str().unwrap();
        [vec![], vec![PROVEN, folder, "proven"], vec![UNPROVEN, folder, "unproven"]].map(|place| {
            let mut command = program();
            command.args([self.base(), port.to_string(), self.documents.client()]);
            command.args([&self.mcp_client.id, &self.mcp_client.secret]).args(&place);
            self.run(&format!("{name}-{}", place.last().unwrap_or(&"loopback")), command).len()
        })
    }

    fn credentials(&self) -> [&str; 3] {
        [&self.client.id, &self.client.secret, REDIRECT]
    }
}

/// A program for Node. It lies where the libraries are, or it would not find them.
fn node(name: &str) -> Command {
    let folder = std::env::var("TEST_NODE").expect("TEST_NODE: scripts/test sets it, scripts/setup installs it");
    let (from, to) = (peer(""), PathBuf::from(folder));
    fs::create_dir_all(to.join("sites")).unwrap();
    let files = [from.clone(), from.join("sites")].map(|folder| fs::read_dir(folder).expect("a folder"));
    for file in files.into_iter().flatten().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "mjs") {
            let place = to.join(file.strip_prefix(&from).unwrap());
            // Whole at once: another test may be reading it.
            let part = place.with_extension(format!("{:?}", std::thread::current().id()));
            fs::copy(&file, &part).unwrap();
            fs::rename(part, place).unwrap();
        }
    }
    let mut command = Command::new("node");
    command.arg(to.join(name));
    command
}

fn python(name: &str) -> Command {
    let python = std::env::var("TEST_PYTHON").expect("TEST_PYTHON: scripts/test sets it, scripts/setup installs it");
    let mut command = Command::new(python);
    command.arg(peer(name));
    command
}

fn peer(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/peers").join(name)
}

#[test]
fn openid_client_for_node() {
    let (stage, mut command) = (Stage::shared(), node("openid-client.mjs"));
    command.arg(stage.base()).args(stage.credentials());
    let done = stage.run("openid-client", command);
    assert_eq!(done.len(), 11, "{done:?}");
}

#[test]
fn authlib_for_python() {
    let (stage, mut command) = (Stage::shared(), python("authlib_client.py"));
    command.arg(stage.base()).args(stage.credentials());
    let done = stage.run("authlib", command);
    assert_eq!(done.len(), 11, "{done:?}");
}

#[test]
fn mcp_for_typescript() {
    let stage = Stage::shared();
    assert_eq!(stage.run_mcp("mcp", || node("mcp.mjs"), stage.mcp_ports[0]), [13, 13, 7]);
}

#[test]
fn mcp_for_python() {
    let stage = Stage::shared();
    assert_eq!(stage.run_mcp("mcp-python", || python("mcp_peer.py"), stage.mcp_ports[1]), [7, 7, 4]);
}

#[test]
fn skills_for_python() {
    let (stage, mut command) = (Stage::shared(), python("skills_mcp.py"));
    let body = json!({ "email": EMAIL, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let person = text(&ask(&stage.server, "POST", "/auth/login", "", &body)["accessToken"]);
    command.args([stage.base(), person]);
    assert_eq!(stage.run("skills", command), ["user", "machine", "suspended", "done"]);
}

#[test]
fn wallets_for_python() {
    let (stage, mut command) = (Stage::shared(), python("wallets.py"));
    let body = json!({ "email": EMAIL, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let person = text(&ask(&stage.server, "POST", "/auth/login", "", &body)["accessToken"]);
    command.args([stage.base(), person]);
    assert_eq!(stage.run("wallets", command), ["eth-account", "pynacl-base58", "pynacl-base64", "done"]);
}

#[test]
fn wallets_for_node() {
    let (stage, mut command) = (Stage::shared(), node("wallets.mjs"));
    let body = json!({ "email": EMAIL, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let person = text(&ask(&stage.server, "POST", "/auth/login", "", &body)["accessToken"]);
    command.args([stage.base(), person]);
    assert_eq!(stage.run("wallets-node", command), ["siwe", "ethers", "done"]);
}

#[test]
fn websites_in_a_browser() {
    let (stage, mut command) = (Stage::shared(), node("websites.mjs"));
    command.args([&stage.base(), EMAIL, PASSWORD, &stage.sites.to_string()]);
    let done = stage.run("websites", command);
    assert_eq!(done.len(), 13, "{done:?}");
}

/// What a published client sends when it registers itself, and what it asks for then. VS Code and MCP Inspector are open
/// source; of the others it is what servers have reported.
struct Shape {
    name: &'static str,
    body: Value,
    redirect_uri: &'static str,
    /// With it, it asks for a token for an MCP server.
    scope: Option<&'static str>,
}

fn shapes() -> Vec<Shape> {
    let (grants, device) = (["authorization_code", "refresh_token"], "urn:ietf:params:oauth:grant-type:device_code");
    let body = json!({
        "client_name": "Visual Studio Code", "client_uri": "https://code.visualstudio.com",
        "grant_types": ["authorization_code", "refresh_token", device], "response_types": ["code"],
        "redirect_uris": [
            "https://insiders.vscode.dev/redirect", "https://vscode.dev/redirect", "http://127.0.0.1/",
            "http://127.0.0.1:33418/",
        ],
        "scope": "mcp:tools", "token_endpoint_auth_method": "none", "application_type": "native",
    });
    let code = |redirect_uri, scope| Shape { name: "VS Code", body: body.clone(), redirect_uri, scope: Some(scope) };
    let mut all = vec![
        code("http://127.0.0.1:33418/", "mcp:tools"),
        // When its port is taken, and when it runs in a browser.
        code("http://127.0.0.1:51422/", "mcp:tools offline_access"),
        code("https://vscode.dev/redirect", "mcp:tools"),
    ];
    all.push(Shape {
        name: "Cursor",
        body: json!({
            "client_name": "Cursor", "grant_types": grants, "response_types": ["code"],
            "redirect_uris": [
                "cursor://anysphere.cursor-mcp/oauth/callback", "https://www.cursor.com/agents/mcp/oauth/callback",
                "http://localhost:8787/callback",
            ],
            "token_endpoint_auth_method": "none",
        }),
        redirect_uri: "cursor://anysphere.cursor-mcp/oauth/callback",
        scope: Some("mcp:tools offline_access"),
    });
    all.push(Shape {
        name: "Claude",
        body: json!({
            "client_name": "Claude", "grant_types": grants, "response_types": ["code"], "scope": "claudeai",
            "redirect_uris": ["https://claude.ai/api/mcp/auth_callback"],
            "token_endpoint_auth_method": "client_secret_post",
        }),
        redirect_uri: "https://claude.ai/api/mcp/auth_callback",
        scope: Some("mcp:tools claudeai"),
    });
    all.push(Shape {
        name: "Claude Code",
        body: json!({
            "client_name": "Claude Code (tools)", "grant_types": grants, "response_types": ["code"],
            "redirect_uris": ["http://localhost:54212/callback"], "token_endpoint_auth_method": "none",
        }),
        redirect_uri: "http://localhost:54212/callback",
        scope: Some("mcp:tools"),
    });
    all.push(Shape {
        name: "MCP Inspector",
        body: json!({
            "client_name": "MCP Inspector", "client_uri": "https://github.com/modelcontextprotocol/inspector",
            "grant_types": grants, "response_types": ["code"], "scope": "", "token_endpoint_auth_method": "none",
            "redirect_uris": ["http://localhost:6274/oauth/callback"],
        }),
        redirect_uri: "http://localhost:6274/oauth/callback",
        scope: Some("mcp:tools"),
    });
    // RFC 7591, 3.1.
    all.push(Shape {
        name: "My Example Client",
        body: json!({
            "redirect_uris": ["https://client.example.org/callback", "https://client.example.org/callback2"],
            "client_name": "My Example Client",
            "client_name#ja-Jpan-JP": "\u{30AF}\u{30E9}\u{30A4}\u{30A2}\u{30F3}\u{30C8}\u{540D}",
            "token_endpoint_auth_method": "client_secret_basic", "logo_uri": "https://client.example.org/logo.png",
            "jwks_uri": "https://client.example.org/my_public_keys.jwks",
            "example_extension_parameter": "example_value",
        }),
        redirect_uri: "https://client.example.org/callback2",
        scope: None,
    });
    all
}

impl Shape {
    /// Registers, sends its person through, redeems the code and refreshes; or what went wrong.
    fn go(&self, stage: &Stage, browser: &mut Browser<'_>) -> Result<(), String> {
        let (status, answer) = stage.server.visit().ask("POST", "/oauth/register", "", &self.body.to_string());
        let told: Value = serde_json::from_str(&answer).unwrap_or_default();
        // What the server put in the place of a wish must be something the client can work with (RFC 7591, 3.2.1).
        if status != 201 || told["token_endpoint_auth_method"] != "none" || told["client_secret"] != Value::Null {
            return Err(format!("registered: {status} {answer}"));
        }
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let client_id = text(&told["client_id"]);
        let resource = format!("http://127.0.0.1:{}/mcp", stage.mcp_ports[0]);
        let target = self.scope.map(|_| ("resource", resource.as_str()));
        let mut link = url::Url::parse(&format!("{}/oauth/authorize", stage.base())).unwrap();
        link.query_pairs_mut()
            .extend_pairs([("response_type", "code"), ("client_id", &client_id), ("state", "a+b/c=")])
            .extend_pairs([("redirect_uri", self.redirect_uri), ("code_challenge_method", "S256")])
            .append_pair("code_challenge", challenge.as_str())
            .extend_pairs(self.scope.map(|scope| ("scope", scope)))
            .extend_pairs(target);
        let back = browser.try_through(link.as_str(), EMAIL, PASSWORD)?;
        let query = back.strip_prefix(self.redirect_uri).and_then(|rest| rest.strip_prefix('?'));
        let query = query.ok_or_else(|| format!("came back at {back}"))?;
        let get = |name: &str| url::form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name);
        let said = |name: &str| get(name).map(|(_, value)| value.into_owned()).unwrap_or_default();
        if said("code").is_empty() || said("state") != "a+b/c=" || said("iss") != stage.base() {
            return Err(format!("came back at {back}"));
        }
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.extend_pairs([("grant_type", "authorization_code"), ("client_id", &client_id), ("code", &said("code"))])
            .extend_pairs([("redirect_uri", self.redirect_uri), ("code_verifier", verifier.secret())])
            .extend_pairs(target);
        let given = token(&stage.server, &body.finish())?;
        let granted = text(&given["scope"]);
        if self.scope.is_some() && !granted.split(' ').any(|scope| scope == "mcp:tools") {
            return Err(format!("granted: {given}"));
        }
        let Some(refresh) = given["refresh_token"].as_str() else { return Ok(()) };
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.extend_pairs([("grant_type", "refresh_token"), ("client_id", &client_id), ("refresh_token", refresh)])
            .extend_pairs(target);
        let turned = token(&stage.server, &body.finish())?;
        if turned["scope"] != given["scope"] {
            return Err(format!("refreshed: {turned}"));
        }
        Ok(())
    }
}

fn token(server: &Server, body: &str) -> Result<Value, String> {
    let head = "POST /oauth/token HTTP/1.1\r\nHost: localhost\r\nConnection: close";
    let kind = "Content-Type: application/x-www-form-urlencoded";
    let (status, answer) =
        server.send(format!("{head}\r\n{kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    if status == 200 { Ok(serde_json::from_str(body).unwrap()) } else { Err(format!("token: {status} {body}")) }
}

#[test]
fn published_clients_register_themselves() {
    let stage = Stage::shared();
    let mut browser = Browser::new(&stage.server);
    let wrong: Vec<_> = shapes()
        .iter()
        .filter_map(|shape| {
            let failed = shape.go(&stage, &mut browser).err()?;
            Some(format!("{}, {}: {failed}", shape.name, shape.redirect_uri))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the library sends, over a socket.
fn carry(server: &Server, request: &HttpRequest) -> HttpResponse {
    let path = request.uri().path_and_query().expect("a path").as_str();
    let headers = request.headers().iter().map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()));
    let headers: String = headers.collect();
    let head = format!("{} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}", request.method());
    let body = String::from_utf8(request.body().clone()).unwrap();
    let (status, answer) = server.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let mut response = axum::http::Response::builder().status(status);
    for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(": ")) {
        response = response.header(name, value);
    }
    response.body(body.as_bytes().to_vec()).unwrap()
}

#[test]
fn openidconnect_for_rust() {
    let stage = Stage::shared();
    let http = |request: HttpRequest| Ok::<_, std::io::Error>(carry(&stage.server, &request));
    let metadata = CoreProviderMetadata::discover(&IssuerUrl::new(stage.base()).unwrap(), &http).unwrap();
    let userinfo = metadata.userinfo_endpoint().unwrap().clone();
    let secret = Some(ClientSecret::new(stage.client.secret.clone()));
    let client = CoreClient::from_provider_metadata(metadata, ClientId::new(stage.client.id.clone()), secret)
        .set_redirect_uri(RedirectUrl::new(REDIRECT.into()).unwrap())
        .set_user_info_url(userinfo);
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let flow = AuthenticationFlow::<CoreResponseType>::AuthorizationCode;
    let (link, state, nonce) = client
        .authorize_url(flow, CsrfToken::new_random, Nonce::new_random)
        .add_scopes(["profile", "email", "offline_access"].map(|scope| Scope::new(scope.into())))
        .set_pkce_challenge(challenge)
        .url();
    let back = Browser::new(&stage.server).go_through(link.as_str(), EMAIL, PASSWORD);
    let back = url::Url::parse(&back).unwrap();
    let get = |name: &str| back.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
    assert_eq!(&get("state"), state.secret());
    let code = AuthorizationCode::new(get("code"));
    let tokens = client.exchange_code(code).unwrap().set_pkce_verifier(verifier).request(&http).unwrap();
    let id_token = tokens.id_token().expect("an id token");
    let verifier = client.id_token_verifier();
    let claims = id_token.claims(&verifier, &nonce).unwrap();
    assert_eq!(claims.email().map(|email| email.as_str()), Some(EMAIL));
    let hash = AccessTokenHash::from_token(
        tokens.access_token(),
        id_token.signing_alg().unwrap(),
        id_token.signing_key(&verifier).unwrap(),
    );
    assert_eq!(claims.access_token_hash(), Some(&hash.unwrap()));
    let about: CoreUserInfoClaims =
        client.user_info(tokens.access_token().clone(), Some(claims.subject().clone())).request(&http).unwrap();
    assert_eq!(about.email_verified(), Some(true));
    let turned = client.exchange_refresh_token(tokens.refresh_token().unwrap()).unwrap().request(&http).unwrap();
    assert!(turned.id_token().unwrap().claims(&verifier, |_: Option<&Nonce>| Ok(())).is_ok());
}
