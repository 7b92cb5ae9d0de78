//! CI without a secret: a run at the code host proves by its OpenID Connect token which repository and branch it is of, and
//! gets a token that deploys that branch of a linked app for a quarter of an hour.
use std::time::Duration;

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
use axum::extract::State;
use data_encoding::BASE64URL_NOPAD;
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{self, Secret},
    fault::{Code, FORBIDDEN, Result},
    http::{Json, Routes},
    recent::Recent,
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenancy::{
    apps::{Application, ApplicationId},
    enter::NotAdmitted,
    once::{self, Purpose},
    sessions::{audience::Audience, sign_in::Typed},
};

use super::{
    api::is_vouched_for,
    authorize::unavailable,
    host::{CodeHost, NOT_CONFIGURED, UNAVAILABLE, is_sha},
    model::{DeployToken, Installation, InstallationId, Link, Previews, Repository, Status},
    settings::Settings,
};
use crate::deployments::Target;

/// How deploy tokens begin.
pub const PREFIX: &str = "dt_";
pub const LIFE: Duration = Duration::from_mins(15);
/// A token of a run counts once.
pub const RUN: Purpose = Purpose::new("codehost_run", Duration::ZERO);

const INVALID_RUN: Code = Code::new(
    401,
    "invalid_run_token",
    "This is no valid OpenID Connect token of a CI run for this server, or it was used before.",
);
const NOT_LINKED: Code =
    Code::new(403, "repository_not_linked", "The repository or branch of this run does not deploy to this app.");

pub fn routes() -> Routes {
    Routes::new("codehost")
        .post("/codehost/token", exchange, "exchange the OpenID Connect token of a CI run for a deploy token")
        .fails(&[NOT_CONFIGURED, UNAVAILABLE, INVALID_RUN, NOT_LINKED, FORBIDDEN])
        .credentials(&[(
            "deployToken",
            r#"{ "type": "http", "scheme": "bearer", "description": "A deploy token of a CI run; not a JWT." }"#,
        )])
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RunToken {
    app_id: ApplicationId,
    /// The OpenID Connect token of the run. Its audience is the base URL of this server.
    #[schemars(with = "String", length(max = 8192))]
    token: Typed,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DeployTokenAnswer {
    /// Send it as a bearer token to `POST /apps/{appId}/deploy`.
    deploy_token: String,
    expires_in: u64,
    app_id: ApplicationId,
    repository: String,
    branch: String,
    target: Target,
}

/// Key sets of issuers, by their URL.
pub struct Issuers(Recent<String, Value>);

impl Default for Issuers {
    fn default() -> Self {
        Self(Recent::new(16, Duration::from_mins(10)))
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    exp: i64,
    nbf: Option<i64>,
    iat: Option<i64>,
    jti: String,
    repository_id: String,
    #[serde(rename = "ref")]
    reference: String,
    #[serde(default)]
    head_ref: String,
    sha: String,
    event_name: String,
}

/// What a run is of.
struct OfRun {
    repository: i64,
    branch: String,
    sha: String,
    is_pull: bool,
}

impl Claims {
    /// The branch whose code ran. Events in which a run has the rights of a branch and may work on other code are refused:
    /// `pull_request_target` runs for forks under the name of the main branch.
    fn of(&self) -> Option<OfRun> {
        let repository = self.repository_id.parse().ok()?;
        let sha = Some(self.sha.clone()).filter(|sha| is_sha(sha))?;
        match self.event_name.as_str() {
            "push" | "workflow_dispatch" | "schedule" | "repository_dispatch" => {
                let branch = self.reference.strip_prefix("refs/heads/").filter(|name| !name.is_empty())?.to_owned();
                Some(OfRun { repository, branch, sha, is_pull: false })
            }
            "pull_request" => {
                let branch = Some(self.head_ref.clone()).filter(|name| !name.is_empty())?;
                Some(OfRun { repository, branch, sha, is_pull: true })
            }
            _ => None,
        }
    }
}

async fn exchange(
    State(janua): State<Janua>,
    NotAdmitted(_): NotAdmitted,
    Json(asked): Json<RunToken>,
) -> Result<Json<DeployTokenAnswer>> {
    CodeHost::host(&janua)?;
    let now = janua.clock.now();
    let claims = verify(&janua, asked.token.0.expose()).await?.ok_or(INVALID_RUN)?;
    let run = claims.of().ok_or(INVALID_RUN)?;
    let mut found = None;
    for link in Link::between(&janua.db, asked.app_id, run.repository).await? {
        let installation = Installation::find(&janua.db, link.installation_id).await?;
        let is_live = |one: &Installation| one.status == Status::Active;
        let Some(installation) = installation.filter(is_live) else { continue };
        if !is_vouched_for(&janua.db, &installation).await? {
            continue;
        }
        if let Some(target) = target_of(&link, &run) {
            let repository = Repository::find(&janua.db, link.installation_id, link.repository_id).await?;
            found = Some((link, target, repository.map(|one| one.full_name).unwrap_or_default()));
            break;
        }
    }
    let (link, target, repository) = found.ok_or(NOT_LINKED)?;
    let used = Secret::from(format!("{}\n{}", claims.iss, claims.jti));
    let secret = Secret::from(format!("{PREFIX}{}", janua.entropy.token().expose()));
    let (born, until) =
        (Timestamp(claims.iat.map_or(now.0, |iat| iat * 1000)), Timestamp(claims.exp * 1000).plus(LIFE));
    let token = DeployToken {
        hash: crypto::hash(secret.expose().as_bytes()),
        link_id: link.id,
        app_id: link.app_id,
        branch: run.branch.clone(),
        sha: run.sha.clone(),
        target,
        created_at: now,
        expires_at: now.plus(LIFE),
    };
    transact!(janua, async |tx| {
        if !once::first_use(tx, RUN, &used, born, now, until).await? {
            return Err(INVALID_RUN.into());
        }
        Ok(token.insert(tx).await?)
    })?;
    Ok(Json(DeployTokenAnswer {
        deploy_token: secret.expose().to_owned(),
        expires_in: LIFE.as_secs(),
        app_id: link.app_id,
        repository,
        branch: run.branch,
        target,
    }))
}

fn target_of(link: &Link, run: &OfRun) -> Option<Target> {
    match (run.is_pull, link.previews) {
        (false, _) if link.production_branch.as_ref() == Some(&run.branch) => Some(Target::Production),
        (false, Previews::Branches) | (true, Previews::Branches | Previews::PullRequests) => Some(Target::Preview),
        _ => None,
    }
}

/// The claims of a token that the issuer signed, for us, now.
async fn verify(janua: &Janua, token: &str) -> Result<Option<Claims>> {
    const LEEWAY_S: i64 = 30;
    let settings = janua.config.of::<Settings>();
    let issuer = settings.codehost_actions_issuer.as_str().trim_end_matches('/').to_owned();
    let decode = |part: &str| BASE64URL_NOPAD.decode(part.as_bytes()).ok();
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts[..] else { return Ok(None) };
    let read = decode(header).and_then(|bytes| serde_json::from_slice::<Header>(&bytes).ok());
    let Some(header_read) = read.filter(|header| header.alg == "RS256") else { return Ok(None) };
    let claimed = decode(claims).and_then(|bytes| serde_json::from_slice::<Claims>(&bytes).ok());
    let (Some(claimed), Some(signature)) = (claimed, decode(signature)) else { return Ok(None) };
    let now = janua.clock.now().0.div_euclid(1000);
    let is_timely = now < claimed.exp
        && claimed.nbf.is_none_or(|nbf| nbf <= now + LEEWAY_S)
        && claimed.iat.is_none_or(|iat| iat <= now + LEEWAY_S);
    let is_for_us = claimed.iss == issuer && claimed.aud.has(&janua.config.base_url());
    if !is_timely || !is_for_us || !(1..=200).contains(&claimed.jti.len()) {
        return Ok(None);
    }
    let text = format!("{header}.{claims}");
    let is_signed = |keys: &Value| {
        let all = keys["keys"].as_array().into_iter().flatten();
        let mut meant = all.filter(|key| key["kid"] == header_read.kid.as_str() && key["kty"] == "RSA");
        meant.any(|key| {
            let part = |name: &str| key[name].as_str().and_then(decode).unwrap_or_default();
            let components = RsaPublicKeyComponents { n: part("n"), e: part("e") };
            components.verify(&RSA_PKCS1_2048_8192_SHA256, text.as_bytes(), &signature).is_ok()
        })
    };
    let kept = janua.own::<Issuers>().0.get(&issuer);
    if kept.as_ref().is_some_and(is_signed) {
        return Ok(Some(claimed));
    }
    // The issuer turns its keys over: one that is not known is looked for, at most every few seconds.
    let host = CodeHost::host(janua)?;
    let has_key = |keys: &Value| {
        keys["keys"].as_array().into_iter().flatten().any(|key| key["kid"] == header_read.kid.as_str())
    };
    if kept.as_ref().is_some_and(has_key) {
        return Ok(None);
    }
    let fetched = host.issuer_keys(janua, &issuer).await.map_err(unavailable)?;
    let Some(fetched) = fetched else { return Ok(None) };
    janua.own::<Issuers>().0.insert(issuer, fetched.clone());
    Ok(is_signed(&fetched).then_some(claimed))
}

/// A CI run that may deploy.
pub struct Run {
    token: DeployToken,
    installation: InstallationId,
    repository: String,
}

impl Run {
    pub async fn find(janua: &Janua, secret: &Secret) -> Result<Option<Self>> {
        let hash = crypto::hash(secret.expose().as_bytes());
        let Some(token) = DeployToken::find(&janua.db, &hash, janua.clock.now()).await? else { return Ok(None) };
        let Some(link) = Link::find(&janua.db, token.link_id).await? else { return Ok(None) };
        let repository = Repository::find(&janua.db, link.installation_id, link.repository_id).await?;
        let repository = repository.map(|one| one.full_name).unwrap_or_default();
        Ok(Some(Self { token, installation: link.installation_id, repository }))
    }

    pub fn app(&self) -> ApplicationId {
        self.token.app_id
    }

    pub fn branch(&self) -> &str {
        &self.token.branch
    }

    pub fn sha(&self) -> &str {
        &self.token.sha
    }

    pub fn target(&self) -> Target {
        self.token.target
    }

    pub fn installation(&self) -> InstallationId {
        self.installation
    }

    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Whether it still may: the link is there, with the same branch for production, and the installation is vouched for.
    pub async fn counts(&self, tx: &mut Tx, janua: &Janua, app: &Application) -> Result<bool> {
        let now = janua.clock.now();
        let Some(token) = DeployToken::find(&mut *tx, &self.token.hash, now).await? else { return Ok(false) };
        let Some(link) = Link::find(&mut *tx, token.link_id).await? else { return Ok(false) };
        let Some(installation) = Installation::find(&mut *tx, link.installation_id).await? else { return Ok(false) };
        let is_production = link.production_branch.as_deref() == Some(self.branch());
        let is_as_before = token.target != Target::Production || is_production;
        let is_vouched_for = is_vouched_for(&mut *tx, &installation).await?;
        Ok(is_as_before && is_vouched_for && installation.org_id == app.org_id)
    }
}
