//! The files in `deploy/`: the proxies run in front of the binary, systemd and a container builder check theirs.
//!
//! Binary and proxy run in a network namespace of their own, where ports 80, 443 and 8080 are free and a client has a
//! public IP address.
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::support::JANUA;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A program of the system, or the one that `scripts/setup` unpacked.
fn program(name: &str, unpacked: &str) -> PathBuf {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/bin"].map(|folder| Path::new(folder).join(name));
    let mut places = places.into_iter().chain([repository().join(".tools").join(unpacked)]);
    places.find(|path| path.exists()).unwrap_or_else(|| panic!("{name} is missing: scripts/setup installs it"))
}

/// A message on the real standard error, which the test harness does not capture.
fn announce(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What a client sees through the proxy, a line each: `name value`.
const CLIENT: &str = r#"
ask() { curl --silent --max-time 20 --cacert "$CA" --resolve id.example.com:443:127.0.0.1 \
  --resolve id.example.com:80:127.0.0.1 --interface 203.0.113.7 "$@"; }
for _ in $(seq 200); do
  [ "$(ask -o /dev/null -w '%{http_code}' https://id.example.com/health || true)" != 200 ] || break
  sleep 0.05
done
echo "health $(ask -o /dev/null -w '%{http_code} %{http_version}' --http2 https://id.example.com/health)"
ask -D headers -o /dev/null -H 'X-Request-Id: through-the-proxy' -H 'X-Forwarded-For: 198.51.100.1' \
  https://id.example.com/legal/terms
echo "id $(tr -d '\r' < headers | sed -n 's/^x-request-id: //pI')"
echo "hsts $(tr -d '\r' < headers | sed -n 's/^strict-transport-security: //pI')"
echo "plain $(ask -o /dev/null -w '%{http_code} %{redirect_url}' 'http://id.example.com/legal/terms?a=b')"
echo "metrics $(ask -o /dev/null -w '%{http_code}' https://id.example.com/metrics)"
head -c 7000000 /dev/zero > seven; head -c 2000000 /dev/zero > two
echo "seven $(ask -o answer -w '%{http_code}' -H 'Content-Type: application/json' --data-binary @seven https://id.example.com/auth/login)"
echo "two $(ask -o answer -w '%{http_code}' -H 'Content-Type: application/json' --data-binary @two https://id.example.com/auth/login)"
echo "upload $(ask -o answer -w '%{http_code}' -X PUT --data-binary @two https://id.example.com/files/incoming/x) $(jq -r .code answer)"
echo "issuer $(ask https://id.example.com/.well-known/openid-configuration | jq -r .issuer)"
"#;

/// Runs the binary, then the proxy by `start`, then the client. Answers what the client saw, and the access log.
fn through(folder: &Path, start: &str) -> (Vec<String>, Vec<Value>) {
    let script = format!(
        r"set -euo pipefail
ip link set lo up
ip address add 203.0.113.7/32 dev lo
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
JANUA_BASE_URL=https://id.example.com JANUA_TRUSTED_PROXIES=127.0.0.1,::1 JANUA_LOG_REQUESTS=all JANUA_LOG_FORMAT=json \
  {JANUA} serve > /dev/null 2> log &
{start}
{CLIENT}
"
    );
    fs::write(folder.join("script"), script).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "bash", "script"]).current_dir(folder).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("HOME", folder);
    let output = command.stdin(Stdio::null()).output().expect("unshare (util-linux) is there");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let log = fs::read_to_string(folder.join("log")).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    (said.lines().map(str::to_owned).collect(), lines.filter(|line| line["target"] == "access").collect())
}

fn check(saw: &[String], log: &[Value], moved: u16) {
    let expected = [
        "health 200 2".to_owned(),
        "id through-the-proxy".into(),
        "hsts max-age=31536000; includeSubDomains".into(),
        format!("plain {moved} https://id.example.com/legal/terms?a=b"),
        "metrics 404".into(),
        "seven 413".into(),
        "two 413".into(),
        "upload 400 invalid".into(),
        "issuer https://id.example.com".into(),
    ];
    assert_eq!(saw, expected);
    let line = log.iter().find(|line| line["request"] == "through-the-proxy").expect("a line in the access log");
    assert_eq!(line["network"], "203.0.113.7", "the client's IP address, not the one it claims nor the proxy's");
    assert_eq!(line["route"], "/legal/terms");
    assert!(!log.iter().any(|line| line["route"] == "/metrics"), "the proxy passes /metrics on to nobody");
}

#[test]
fn nginx_passes_on_the_client_and_keeps_the_rest_out() {
    let (folder, nginx) = (tempfile::tempdir().unwrap(), program("nginx", "nginx/usr/sbin/nginx"));
    let sample = fs::read_to_string(repository().join("deploy/nginx.conf")).unwrap();
    let place = folder.path().display().to_string();
    let certificates = "/etc/letsencrypt/live/id.example.com";
    assert_eq!(sample.matches(certificates).count(), 2, "the certificate and its key");
    fs::write(folder.path().join("janua.conf"), sample.replace(certificates, &place)).unwrap();
    let frame = format!(
        "user root;\npid {place}/pid;\nerror_log {place}/errors;\nevents {{}}\nhttp {{\naccess_log off;\n\
         client_body_temp_path {place}/body;\nproxy_temp_path {place}/proxy;\nfastcgi_temp_path {place}/f;\n\
         uwsgi_temp_path {place}/u;\nscgi_temp_path {place}/s;\ninclude {place}/janua.conf;\n}}\n"
    );
    fs::write(folder.path().join("nginx.conf"), frame).unwrap();
    let start = format!(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout privkey.pem -out fullchain.pem -days 2 \
           -subj /CN=id.example.com -addext subjectAltName=DNS:id.example.com 2> /dev/null\n\
         CA=fullchain.pem\n{0} -p {place} -e {place}/errors -c {place}/nginx.conf -t 2> checked || {{ cat checked; exit 1; }}\n\
         {0} -p {place} -e {place}/errors -c {place}/nginx.conf -g 'daemon off;' &",
        nginx.display()
    );
    let (saw, log) = through(folder.path(), &start);
    check(&saw, &log, 301);
}

#[test]
fn caddy_passes_on_the_client_and_keeps_the_rest_out() {
    let (folder, caddy) = (tempfile::tempdir().unwrap(), program("caddy", "caddy/usr/bin/caddy"));
    let sample = repository().join("deploy/Caddyfile");
    // Certificates of its own authority in place of one on the internet.
    let frame = format!("{{\n\tlocal_certs\n\tskip_install_trust\n\tadmin off\n}}\nimport {}\n", sample.display());
    fs::write(folder.path().join("Caddyfile"), frame).unwrap();
    let start = format!(
        "export XDG_DATA_HOME=$PWD/data-of-caddy XDG_CONFIG_HOME=$PWD\n\
         CA=data-of-caddy/caddy/pki/authorities/local/root.crt\n\
         {0} validate --config Caddyfile --adapter caddyfile > checked 2>&1 || {{ cat checked; exit 1; }}\n\
         {0} run --config Caddyfile --adapter caddyfile > caddy.log 2>&1 &\n\
         for _ in $(seq 200); do [ ! -e $CA ] || break; sleep 0.05; done",
        caddy.display()
    );
    let (saw, log) = through(folder.path(), &start);
    check(&saw, &log, 308);
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        announce("deploy/janua.service was not checked: there is no systemd-analyze on this machine");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(repository().join("deploy/janua.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/local/bin/janua serve"));
    let path = folder.path().join("janua.service");
    fs::write(&path, unit.replace("/usr/local/bin/janua", JANUA)).unwrap();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && !said.contains("janua.service:"), "{said}");
    let rated =
        Command::new("systemd-analyze").args(["security", "--offline=yes", "--threshold=20"]).arg(&path).output();
    let rated = rated.unwrap();
    assert!(rated.status.success(), "exposure above 2.0:\n{}", String::from_utf8_lossy(&rated.stdout));
}

/// Building takes minutes and needs the network, so it is done when asked for.
#[test]
fn the_container_file_builds_an_image_that_answers() {
    let builders = ["podman", "docker"];
    let works = |name: &&str| Command::new(name).arg("info").output().is_ok_and(|ran| ran.status.success());
    let Some(builder) = builders.into_iter().find(works) else {
        return announce("deploy/Containerfile was not built: neither podman nor docker works on this machine");
    };
    if std::env::var_os("TEST_CONTAINER").is_none() {
        return announce("deploy/Containerfile was not built: set TEST_CONTAINER=1 to build it (minutes)");
    }
    let arguments = ["build", "--file", "deploy/Containerfile", "--tag", "janua-test", "."];
    let built = Command::new(builder).args(arguments).current_dir(repository()).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(builder).args(["run", "--rm", "--read-only", "janua-test", "--version"]).output().unwrap();
    assert!(ran.status.success() && String::from_utf8_lossy(&ran.stdout).starts_with("janua "), "{ran:?}");
}
